// For Node: keeps the position in a file, sends over UDP and HTTP, publishes to topics and polls them.

export * from "./oplog.js";
export { UnavailableError } from "./lib/errors.js";
export { HttpProducer } from "./lib/http_producer.js";
export { encode } from "./lib/operation.js";
export { fileState } from "./lib/state_file.js";
export { Topic } from "./lib/topic.js";
export { UdpProducer } from "./lib/udp_producer.js";
