"use strict";
// The members of /status: rates as plots, fill levels as meters, consumers. Polled every two seconds.

const POLL_MS = 2000;
const HIDDEN_POLL_MS = 15000;
const POINTS = 90; // three minutes
const SHOWN_CONSUMERS = 100;
const COUNTED = { received: "events_received", ingested: "events_ingested", sent: "events_sent" };

class Plot {
  #tile;
  #svg;
  #points = [];

  constructor(name) {
    this.#tile = document.querySelector(`[data-plot="${name}"]`);
    this.#svg = byId("plot").content.firstElementChild.cloneNode(true);
    this.#tile.append(this.#svg);
  }

  add(value, note) {
    this.#points.push(value);
    if (this.#points.length > POINTS) this.#points.shift();
    const peak = Math.max(...this.#points), top = Math.max(peak, 1) * 1.1;
    const name = this.#tile.querySelector("h2").textContent;
    setText(this.#tile.querySelector("span"), rate(value));
    setText(this.#tile.querySelector(".dim"), note);
    this.#svg.setAttribute("aria-label", `${name} in the last three minutes: now ${rate(value)}, at most ${rate(peak)}`);
    const first = POINTS - this.#points.length;
    const line = this.#points.map((y, x) => `${first + x},${(40 - (y / top) * 40).toFixed(2)}`).join("L");
    this.#svg.querySelector(".line").setAttribute("d", `M${line}`);
    this.#svg.querySelector(".area").setAttribute("d", `M${first},40L${line}L${POINTS - 1},40Z`);
  }
}

class Gauge {
  #cell;
  #bar;

  constructor(name) {
    this.#cell = document.querySelector(`[data-gauge="${name}"]`);
    this.#cell.append(byId("meter").content.cloneNode(true));
    this.#bar = this.#cell.querySelector("[role=meter]");
    this.#bar.setAttribute("aria-label", this.#cell.querySelector("h2").textContent);
  }

  /** `share`: fill level from 0 to 1, null without a limit. */
  show(value, note, share = null, bad = false) {
    setText(this.#cell.querySelector("b"), value);
    this.#cell.querySelector("b").classList.toggle("bad", bad);
    setText(this.#cell.querySelector(".dim"), note);
    this.#cell.classList.toggle("flat", share === null);
    const percent = Math.round(Math.min(share ?? 0, 1) * 1000) / 10;
    this.#bar.setAttribute("aria-valuenow", String(percent));
    this.#bar.style.width = `${percent}%`;
    return this;
  }

  /** Colour the bar by its fill level. */
  warn(share) {
    this.#bar.className = share > 0.9 ? "full" : share > 0.5 ? "high" : "";
  }

  set hidden(hidden) {
    this.#cell.hidden = hidden;
  }
}

/** Text beside the number of objects: deleted objects, and the lag of fold and follower. */
function objectsNote({ deleted, lag }) {
  const notes = deleted === null ? ["including deleted objects"] : [`${count(deleted)} deleted`];
  if (lag.fold || lag.follower) notes.push(`lag: fold ${count(lag.fold)}, follower ${count(lag.follower)}`);
  return notes.join(", ");
}

/** Text in place of operations while there are none. `status`: null if the agent does not answer. */
function waitingText(status) {
  if (status === null) return "The agent does not answer.";
  return status.status === "OK" ? "Waiting for the next operation." : "No operation comes while the agent is degraded.";
}

class Figures {
  #plots = {};
  #gauges = {};
  #last = null;
  #lastAt = 0;
  #timer = null;
  status = null;
  passwordNeeded = false; // the consumers are shown after signing in

  constructor() {
    for (const name of ["received", "ingested", "sent", "clients"]) this.#plots[name] = new Plot(name);
    for (const name of ["queue", "ring", "log", "spool", "objects", "lost"]) this.#gauges[name] = new Gauge(name);
    document.addEventListener("visibilitychange", () => document.hidden || this.poll());
  }

  async poll() {
    clearTimeout(this.#timer);
    try {
      const response = await fetch("status", { cache: "no-store", signal: AbortSignal.timeout(10000) });
      this.status = await response.json();
      this.#show(this.status);
      this.#notice(this.status);
    } catch {
      this.#last = null;
      this.#notice(null);
    }
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.poll(), document.hidden ? HIDDEN_POLL_MS : POLL_MS);
  }

  #show(status) {
    const { store, ring, spool } = status, away = store.ops === undefined;
    this.#rates(status);
    setText(byId("agent"), `${status.version} · ${store.kind} · up ${duration(status.uptime_seconds)}`);
    const queued = Math.max(status.queue_size / status.queue_max_size, status.queue_bytes / status.queue_max_bytes);
    this.#gauges.queue.show(count(status.queue_size), `of ${count(status.queue_max_size)} operations`, queued).warn(queued);
    this.#gauges.ring.show(
      plural(ring.operations, "operation"), `${bytes(ring.bytes)} of ${bytes(ring.max_bytes)}`,
      Math.max(ring.operations / ring.max_operations, ring.bytes / ring.max_bytes),
    );
    this.#gauges.spool.hidden = spool.max_bytes === 0;
    const spooled = spool.bytes / spool.max_bytes;
    this.#gauges.spool.show(plural(spool.operations, "operation"), `${bytes(spool.bytes)} of ${bytes(spool.max_bytes)}`, spooled).warn(spooled);
    if (away) {
      this.#gauges.log.show("away", "the store does not answer", null, true);
      this.#gauges.objects.show("away", "", null, true);
    } else {
      this.#gauges.log.show(plural(store.ops, "operation"), `${bytes(store.bytes)} of ${bytes(store.max_bytes)}`, store.bytes / store.max_bytes);
      this.#gauges.objects.show(count(store.live ?? store.states), objectsNote(store));
    }
    const lost = status.events_error + status.events_discarded + status.events_dropped_kernel;
    const parts = [`${count(status.events_error)} invalid`, `${count(status.events_discarded)} discarded`, `${count(status.events_dropped_kernel)} in kernel`];
    this.#gauges.lost.show(count(lost), parts.join(", "), null, lost > 0);
    this.#consumers(status);
  }

  #rates(status) {
    const now = performance.now(), seconds = (now - this.#lastAt) / 1000;
    const known = this.#last !== null && status.uptime_seconds >= this.#last.uptime_seconds;
    for (const [name, member] of Object.entries(COUNTED)) {
      const value = known ? (status[member] - this.#last[member]) / seconds : status.rates[name];
      this.#plots[name].add(value, `${count(status[member])} in total`);
    }
    this.#plots.clients.add(status.clients, `${plural(status.connections, "connection")} in total`);
    this.#last = status;
    this.#lastAt = now;
  }

  #notice(status) {
    const lines = [];
    if (status === null) lines.push(["bad", "Unreachable", "The agent does not answer. The page shows old data."]);
    else if (status.status !== "OK") lines.push(["bad", "Degraded", status.reason ?? "The store is unreachable."]);
    for (const warning of status?.store.warnings ?? []) lines.push(["warn", "Warning", warning]);
    const box = byId("notice"), key = JSON.stringify(lines);
    if (box.dataset.shown === key) return;
    box.dataset.shown = key;
    box.replaceChildren(...lines.map(([kind, head, text]) => {
      const line = document.createElement("p"), strong = document.createElement("b");
      line.className = kind;
      strong.textContent = head;
      line.append(strong, text);
      return line;
    }));
    setText(byId("empty"), waitingText(status));
    document.title = lines.length ? `${lines[0][1]}: oplog` : "oplog";
  }

  #consumers({ consumers, consumers_left_out: leftOut, clients }) {
    const note = byId("consumers-note"), body = byId("consumer-rows");
    setText(byId("consumers-count"), consumers ? `${count(clients)}, by lag: what is not yet sent to them` : "");
    const shown = (consumers ?? []).slice(0, SHOWN_CONSUMERS);
    while (body.rows.length > shown.length) body.deleteRow(-1);
    while (body.rows.length < shown.length) consumerRow(body);
    shown.forEach((consumer, index) => showConsumer(body.rows[index], consumer));
    const more = (consumers?.length ?? 0) - shown.length + (leftOut ?? 0);
    if (!consumers) setText(note, this.passwordNeeded ? "Sign in to see the consumers." : "Shown only on the agent's machine, or with a password.");
    else setText(note, more ? `and ${plural(more, "other")}` : shown.length ? "" : "No consumers are connected.");
    note.hidden = note.textContent === "";
  }
}

function consumerRow(body) {
  const row = body.insertRow();
  for (const name of ["", "", "number"]) {
    const cell = row.insertCell(), second = document.createElement("span");
    cell.className = name;
    second.className = "dim";
    cell.append(document.createElement("span"), second);
  }
}

/** `topic` and `held_by` are absent for a consumer of operations. */
function showConsumer(row, { name, address, topic, filter, position, phase, held_by: heldBy, lag, sent }) {
  const wanted = [...filter.types, ...filter.parents];
  if (filter.left_out) wanted.push(`${count(filter.left_out)} more`);
  const all = topic ? `topic ${topic}` : "all operations";
  const doing = heldBy ? `held by pointer ${heldBy}, ` : phase === "live" ? "" : "replicating, ";
  const lines = [
    [name ? `${name} (${address})` : address, wanted.length ? wanted.join(", ") : all],
    [position, `${doing}${count(sent)} sent`],
    [count(lag.operations), heldBy ? "held" : lag.operations ? duration(lag.seconds) : "all sent"],
  ];
  lines.forEach(([first, second], index) => {
    const cell = row.cells[index];
    setText(cell.firstChild, first);
    setText(cell.lastChild, second);
  });
  row.cells[0].title = lines[0].join("\n");
  row.cells[1].title = lines[1].join("\n");
  row.cells[2].firstChild.classList.toggle("late", lag.seconds > 10);
}
