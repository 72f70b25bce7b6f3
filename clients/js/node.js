// For Node: keeps the position in a file, and sends over UDP and HTTP.

export * from "./oplog.js";
export { HttpProducer } from "./lib/http_producer.js";
export { encode } from "./lib/operation.js";
export { fileState } from "./lib/state_file.js";
export { UdpProducer } from "./lib/udp_producer.js";
