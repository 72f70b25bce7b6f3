// Plays many clients in one process. Each line of stdin starts one; each line of stdout tells what one has done.

import { createInterface } from "node:readline";
import * as consumer from "./consumer.mjs";
import * as producer from "./producer.mjs";

const roles = { consumer, producer };
const tell = (fact) => process.stdout.write(`${JSON.stringify(fact)}\n`);

for await (const line of createInterface({ input: process.stdin })) {
  const { run, role, args, folder, password, input } = JSON.parse(line);
  roles[role].play({
    args, folder, password,
    input: [Buffer.from(input, "base64")],
    print: (text) => tell({ run, out: text }),
    log: (text) => tell({ run, err: text }),
  }).then((exit) => tell({ run, exit }));
}
