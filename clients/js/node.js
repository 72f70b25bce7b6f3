// For Node: the position in a file, and producers over UDP and HTTP.

export * from "./oplog.js";
export { HttpProducer } from "./lib/http_producer.js";
export { encode } from "./lib/operation.js";
export { fileState } from "./lib/state_file.js";
export { UdpProducer } from "./lib/udp_producer.js";
