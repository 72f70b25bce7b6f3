"""Chooses a codec by media type."""

from oplogd.media_types import AVRO, JSON
from oplogd.topics.avro import AvroCodec
from oplogd.topics.codec import Codec
from oplogd.topics.json_codec import JsonCodec

MEDIA_TYPES = (JSON, AVRO)

_codecs: dict[str, Codec] = {JSON: JsonCodec(), AVRO: AvroCodec()}


def codec_of(media_type: str) -> Codec | None:
    """Return the codec of a media type, None if there is none."""
    return _codecs.get(media_type)
