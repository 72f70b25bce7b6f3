// Plays many consumers in one process. Each line of stdin starts one; each line of stdout tells what one has done.

import { createInterface } from "node:readline";
import { play } from "./consumer.mjs";

const tell = (fact) => process.stdout.write(`${JSON.stringify(fact)}\n`);

for await (const line of createInterface({ input: process.stdin })) {
  const { run, args, folder, password } = JSON.parse(line);
  play({
    args, folder, password,
    print: (text) => tell({ run, out: text }),
    log: (text) => tell({ run, err: text }),
  }).then((exit) => tell({ run, exit }));
}
