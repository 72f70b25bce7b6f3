import { topicRefusal } from "./errors.js";
import { EventStream, addParameters, streamOptions } from "./event_stream.js";
import { isTopicPosition, readTopicBlock } from "./messages.js";
import { READ_COMMITTED, checkOptions } from "./options.js";
import { OPLOG, topicAddress } from "./topic_address.js";

const MESSAGES = {
  isPosition: isTopicPosition,
  position: "a message id",
  readBlock: readTopicBlock,
  refusal: topicRefusal,
  maxBlock: 8 << 20, // a message has 1 MiB, and JSON may take six bytes for each of them
};

/** Follows a topic. See oplog.d.ts. */
export class TopicConsumer extends EventStream {
  constructor(url, topic, options = {}) {
    const checked = streamOptions(options, { isolation: READ_COMMITTED });
    const { isolation } = checked;
    checkOptions({ isolation }, { isolation: "isolation" });
    if (topic === OPLOG) throw new TypeError(`topic: follow ${OPLOG} with Consumer`);
    const { url: target, credentials } = topicAddress(url, topic, checked);
    target.pathname += "/stream";
    addParameters(target, checked);
    target.searchParams.set("isolation", isolation);
    super({ url: target, credentials, options: checked, kind: MESSAGES });
  }
}
