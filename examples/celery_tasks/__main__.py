"""Enqueues the tasks of one order, each of them twice: `python -m examples.celery_tasks o-1`."""

import sys

from examples.celery_tasks import tasks


def main(order: str) -> None:
    for _ in range(2):  # as a producer does that got no confirmation
        tasks.charge_order.apply_async((order, 500), task_id=f"charge-{order}")
        tasks.reward_order.apply_async(("ann", order, 5), task_id=f"reward-{order}")
        tasks.label_order.apply_async((order, "1 Main Street"), task_id=f"label-{order}")
    print(f"6 messages for 3 tasks of order {order}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "o-1")
