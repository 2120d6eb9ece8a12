"""What a function returns, raises and is called with, as bytes.

codec(annotation)      a return value as JSON, decoded by the annotation with its type kept
ErrorCodec(types)      an exception of the declared types
fingerprint_value      an argument, to be compared and never decoded
"""

from retrysafe.operations.values.codec import Codec, NotEncodable, codec
from retrysafe.operations.values.comparison import NotComparable, fingerprint_value, is_comparable
from retrysafe.operations.values.exceptions import ErrorCodec

__all__ = [
    "Codec",
    "ErrorCodec",
    "NotComparable",
    "NotEncodable",
    "codec",
    "fingerprint_value",
    "is_comparable",
]
