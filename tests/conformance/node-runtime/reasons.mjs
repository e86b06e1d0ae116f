// Every reason for a rejection, with its rule and whose fault it is (HOST-003), as the vectors list them.
import { readFileSync } from 'node:fs';

export const REASONS = JSON.parse(readFileSync(new URL('../../../spec/vectors/reasons.json', import.meta.url)));
