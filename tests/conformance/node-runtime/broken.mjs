// The switch for the deliberately broken variants; README.md lists them. Without it the runtime is whole.
const at = process.argv.indexOf('--broken');
const name = at > 0 ? process.argv[at + 1] : process.env.KEEP_BROKEN ?? '';

export const isBroken = (variant) => variant === name;
