/** A kernel made of a dump: traits in memory, questions answered from widgets/fixtures/answers.json. */
export class FixtureModel {
  constructor(traits, answers = {}) {
    this.traits = traits;
    this.answers = answers;
    this.sent = [];
    this.listeners = new Map();
  }
  get(name) {
    return this.traits[name];
  }
  set(name, value) {
    this.traits[name] = value;
    this.emit(`change:${name}`);
  }
  save_changes() {}
  on(event, listener) {
    this.listeners.set(event, [...(this.listeners.get(event) ?? []), listener]);
  }
  off(event, listener) {
    this.listeners.set(
      event,
      (this.listeners.get(event) ?? []).filter((one) => one !== listener),
    );
  }
  emit(event, ...args) {
    for (const listener of this.listeners.get(event) ?? []) listener(...args);
  }
  /** How many listeners are left: none after the view is closed. */
  count() {
    return [...this.listeners.values()].reduce((sum, all) => sum + all.length, 0);
  }
  send({ id, body }) {
    this.sent.push(body);
    if (body.ask === "candidates" && this.candidates) {
      const { offset, limit } = body;
      return this.reply({
        kind: "answer",
        id,
        value: { total: this.candidates.length, offset, rows: this.candidates.slice(offset, offset + limit) },
      });
    }
    if (body.ask)
      return this.reply({
        ...(this.answers[body.ask] ?? { error: "The dump has no answer to that." }),
        kind: "answer",
        id,
      });
    this.reply({ kind: "done", id });
  }
  reply(message) {
    setTimeout(() => this.emit("msg:custom", message), 5);
  }
}
