// The host (level *behaviour*): it asks the state what to do, commits each step, performs its effects by asking the
// world, and turns the answers into commands (HOST-001 to HOST-010).
import { randomUUID } from 'node:crypto';
import { isBroken } from './broken.mjs';
import { REASONS } from './reasons.mjs';
import { recover, schedule, upkeep } from './schedule.mjs';
import { handlerOf, isActive, isTooLong, isUnresolved } from './state.mjs';
import { step } from './step.mjs';

// FAIL-001: the status and the cause that the end of a run is asked for, by the class of its failure.
const STATUS = {
  auth: 'paused:approval', permission: 'paused:approval', approval: 'paused:approval', network: 'paused:transient',
  rate_limit: 'paused:transient', timeout: 'paused:transient', script: 'failed:logic', bad_result: 'failed:logic',
  forbidden: 'failed:logic', limit: 'failed:logic', refused: 'failed:logic', host: 'failed:internal',
  connector: 'failed:internal', unknown: 'paused:reconciliation',
};
const CAUSE = { auth: 'auth', permission: 'permission', approval: 'request' };
const CLASS_OF_FAULT =
  { script: 'script', transient: 'network', permission: 'permission', approval: 'approval', host: 'host' };
const endOf = ({ failure, message = '', tool = '' }) =>
  ({ type: 'end_run', status: STATUS[failure], message, cause: CAUSE[failure] ?? '', tool });
const LOST = endOf({ failure: 'unknown', message: 'nobody knows the outcome yet' });
const FAILED = endOf({ failure: 'network', message: 'the call did not happen' });

// HOST-010: what the active run does next while no answer is in hand.
function advance({ run, mutation, ...state }) {
  if (run.phase === 'pending') return { type: 'begin' };
  if (run.phase === 'prepared') {
    const mutates = run.reserved.length > 0 && handlerOf(state, run).declared.has_mutate;
    return { type: mutates ? 'mutating' : 'emitting' };
  }
  if (mutation?.status === 'pending') return { type: 'send_mutation' };
  if (isUnresolved({ mutation })) return LOST;
  if (run.phase !== 'mutated') return null;
  return run.outcome === 'failure' ? FAILED : { type: 'emitting' };
}

// HOST-010: the commands that report an answer.
function respond(state, effect, { type, ...answer }, now) {
  const { by, asked_at } = effect;
  const inline = (...ends) => (by === 'inline' ? ends : []);
  const may_land_until = state.mutation?.may_land_until;
  const result = isTooLong(state, answer.result ?? '') ? 'null' : answer.result ?? 'null';
  switch (type) {
    case 'pinned': return [{ type: 'prepared', ...answer }];
    case 'called': return [{ type: 'record_mutation', ...answer }];
    case 'called_nothing': return [{ type: 'mutated' }];
    case 'finished':
      if (effect.function === 'producer') return [{ type: 'commit_producer', ...answer }];
      return [{ type: 'commit_consumer', state: answer.state, publications: answer.publications }];
    case 'happened': return [{ type: 'apply_mutation', by: by ?? 'call', result }];
    case 'failed': {
      const refused = { type: 'fail_mutation', by: 'call', voided: false, asked_at: 0 };
      return effect.type === 'send' ? [refused, endOf(answer)] : [endOf(answer)];
    }
    case 'unknown': return [{ type: 'lose_track', message: answer.message }];
    case 'did_not_happen':
      if (answer.voided || asked_at >= may_land_until) {
        return [{ type: 'fail_mutation', by, voided: answer.voided, asked_at }, ...inline(FAILED)];
      }
      return now < may_land_until ? [{ type: 'reconcile_retry', by, early: true }, ...inline(LOST)] : inline(LOST);
    case 'ask_again': return [{ type: 'reconcile_retry', by, early: false, message: answer.message }, ...inline(LOST)];
    case 'no_method': return by === 'inline' ? [LOST] : [{ type: 'exhaust', no_method: true }];
    case 'deploy': return [answer.command];
    case 'no_repair': return [];
    default: throw new Error(`no such answer: ${type}`);
  }
}

export class Host {
  constructor(store, ask) {
    this.store = store;
    this.ask = ask; // a function that sends a question to the world and returns its answer
    this.effects = [];
    this.early = null; // an answer that came before its effect, in a broken variant
  }

  // One step, durable before anything else happens (HOST-001).
  do(command) {
    const outcome = step(this.store.state, command);
    if (outcome.type === 'accepted') this.store.commit(outcome.state, outcome.retired);
    return outcome;
  }

  // REC-001 to REC-003.
  recover(now, message) {
    const effects = [];
    for (let [command] = recover(this.store.state, now); command; [command] = recover(this.store.state, now)) {
      effects.push(...this.do(command.type === 'end_run' ? { ...command, message } : command).effects);
    }
    return effects;
  }

  // Do all that can be done at `now`; returns the time at which there is more to do, or null.
  async work(now) {
    this.now = now;
    let repairs = true;
    for (;;) {
      const { state } = this.store;
      if (this.effects.length > 0) {
        const answer = await this.perform(this.effects.shift());
        if (answer.type === 'no_repair') repairs = false;
      } else if (isActive(state)) {
        const command = advance(state);
        if (!command) return null;
        await this.submit({ ...command, now: this.now, run: state.run.id });
      } else {
        const wishes = [upkeep(state, this.now), schedule(state, this.now, randomUUID())];
        const wish = wishes.find(({ type }) => !['idle', 'wait'].includes(type) && (repairs || type !== 'repair'));
        const times = wishes.filter(({ type }) => type === 'wait').map(({ until }) => until);
        if (!wish) return times.length > 0 ? Math.min(...times) : null;
        if (['reconcile', 'repair'].includes(wish.type)) this.effects.push(wish);
        else await this.submit(wish);
      }
    }
  }

  async submit(command) {
    if (isBroken('send-before-commit') && command.type === 'send_mutation') {
      const [send] = step(this.store.state, command).effects ?? [];
      if (send) this.early = await this.ask({ effect: send });
    }
    const outcome = this.do(command);
    if (outcome.type === 'accepted') return this.effects.push(...outcome.effects);
    // HOST-003: a rejection that is not the caller's fault ends the active run that the command names.
    const failure = CLASS_OF_FAULT[REASONS[outcome.reason].fault];
    const { run, mutation } = this.store.state;
    if (!failure || !isActive(this.store.state) || command.run !== run.id) return null;
    const tool = failure === 'permission' ? mutation.tool : '';
    return this.submit({ ...endOf({ failure, message: outcome.reason, tool }), now: this.now, run: run.id });
  }

  async perform(effect) {
    // HOST-002: a call that is too late never leaves, and that it did not happen is certain.
    const isLate = effect.type === 'send' && this.now > effect.send_by;
    const late = { type: 'failed', failure: 'network', message: 'too late to send' };
    const reply = isLate ? { answer: late } : this.early ?? await this.ask({ effect, ...this.told(effect) });
    const { now = this.now, answer } = reply;
    Object.assign(this, { now, early: null });
    for (const command of respond(this.store.state, effect, answer, now)) {
      await this.submit({ now, run: effect.run, ...command });
    }
    return answer;
  }

  // What a function is told beside its effect (SCRIPT-006 and SCRIPT-007).
  told(effect) {
    const { events, policy, run } = this.store.state;
    if (effect.function === 'prepare') {
      const { subscribes } = handlerOf(this.store.state, run).declared;
      const pending = events.filter(({ status, key }) => status === 'pending' && subscribes.includes(key.topic));
      return { pending: pending.slice(0, policy.peek_default).map(({ key }) => key) };
    }
    if (effect.function !== 'next') return {};
    if (run.outcome === 'success') return { mutation: { status: 'applied', result: run.result } };
    return { mutation: { status: run.outcome || 'none' } };
  }
}
