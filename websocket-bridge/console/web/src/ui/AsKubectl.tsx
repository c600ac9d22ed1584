// AsKubectl shows the command that prints what a view shows.
import { useState } from 'preact/hooks';
import { escapeOf, highControls, reversing } from './text.ts';

// Characters that a terminal acts on when a user pastes them, or that change the order in which text is shown.
const unsafe = new RegExp(`[\\u0000-\\u001f${highControls}${reversing}]`, 'g');

// quote quotes an argument for a shell. Unsafe characters become escapes, which bash and zsh understand.
export function quote(argument: string): string {
  if (argument.search(unsafe) >= 0) {
    const escaped = argument.replaceAll('\\', '\\\\').replaceAll("'", "\\'");
    return `$'${escaped.replace(unsafe, escapeOf)}'`;
  }
  return /^[A-Za-z0-9_.,:=@%+/-]+$/.test(argument) ? argument : `'${argument.replaceAll("'", `'\\''`)}'`;
}

// The options that the views use. Any other argument that begins with a hyphen is a value.
const options = new RegExp('^(-[Aclnop]|-it|--(all-containers|field-selector|follow|for|image|max-log-requests|prefix|' +
  'previous|raw|selector|sort-by|tail|target|timestamps|type|verbs|watch)(=.*)?)$', 's');

// kubectl returns a command line. context is the name of a member cluster, fleet, or undefined for the gateway. Names of
// objects and kinds are in arrays. It returns a comment if kubectl would read a name or a value as an option: such as
// --server, which gets the caller's token.
export function kubectl(context: string | undefined, ...args: (string | string[] | undefined | false)[]): string {
  const isName = (word: string) => args.some((a) => Array.isArray(a) && a.includes(word));
  const words = args.flat().filter((a): a is string => typeof a === 'string' && a !== '');
  const end = words.indexOf('--');
  const own = end < 0 ? words : words.slice(0, end);
  const isUnsafe = (word: string) => word.startsWith('-') && (isName(word) || !options.test(word));
  if (context?.startsWith('-') || own.some(isUnsafe) || isName('--')) {
    return '# There is no command: kubectl would read a name here as an option.';
  }
  return ['kubectl', ...(context ? ['--context', quote(context)] : []), ...words.map(quote)].join(' ');
}

export function AsKubectl(props: { command: string }) {
  const [isOpen, setOpen] = useState(false);
  const [copied, setCopied] = useState<{ command: string; result: string }>();
  const copy = async () => {
    const { command } = props;
    const result = await navigator.clipboard.writeText(command)
      .then(() => 'Copied', () => 'The browser refuses the clipboard');
    setCopied({ command, result });
  };
  return (
    <div class="as-kubectl">
      <button type="button" aria-expanded={isOpen} onClick={() => { setOpen(!isOpen); setCopied(undefined); }}>
        Show as kubectl
      </button>
      {isOpen && (
        <div class="command">
          <code>{props.command}</code>
          <button type="button" onClick={copy}>{copied?.command === props.command ? copied.result : 'Copy'}</button>
        </div>
      )}
    </div>
  );
}
