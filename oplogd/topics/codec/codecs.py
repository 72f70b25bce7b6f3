"""Chooses a codec by media type. Avro is an extra of the package."""

from oplog_kit.extras import is_installed
from oplogd.decode.media_types import AVRO, JSON
from oplogd.topics.codec.avro import AvroCodec
from oplogd.topics.codec.codec import Codec
from oplogd.topics.codec.json_codec import JsonCodec

_codecs: dict[str, Codec] = {JSON: JsonCodec()}
if is_installed("fastavro"):
    _codecs[AVRO] = AvroCodec()

MEDIA_TYPES = tuple(_codecs)


def codec_of(media_type: str) -> Codec | None:
    """Return the codec of a media type, None if there is none."""
    return _codecs.get(media_type)
