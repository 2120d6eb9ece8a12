#!/bin/sh
# Makes two jobs of Cloud Run, and has Cloud Scheduler run them daily at three:
#
#   PROJECT=validation REGION=europe-west1 IMAGE=europe-docker.pkg.dev/validation/service:1 \
#   ACCOUNT=scheduler@validation.iam.gserviceaccount.com ops/google-cloud/schedule.sh
set -eu
: "${PROJECT:?}" "${REGION:?}" "${IMAGE:?}" "${ACCOUNT:?}"
folder=$(dirname "$0")

for command in cleanup_idempotency_keys cleanup_callback_receipts; do
    name=validation-$(echo "$command" | tr _ -)
    job=$(mktemp)
    sed "s|\${NAME}|$name|; s|\${IMAGE}|$IMAGE|; s|\${COMMAND}|$command|" "$folder/cleanup-job.yaml" >"$job"
    gcloud run jobs replace "$job" --project "$PROJECT" --region "$REGION"
    rm "$job"
    gcloud scheduler jobs create http "$name" --project "$PROJECT" --location "$REGION" \
        --schedule "0 3 * * *" --time-zone Etc/UTC --http-method POST \
        --uri "https://run.googleapis.com/v2/projects/$PROJECT/locations/$REGION/jobs/$name:run" \
        --oauth-service-account-email "$ACCOUNT"
done
