// AsKubectl shows the command that prints what a view shows.
import { useState } from 'preact/hooks';

// quote quotes an argument for a POSIX shell.
export function quote(argument: string): string {
  return /^[A-Za-z0-9_.,:=@%+/-]+$/.test(argument) ? argument : `'${argument.replaceAll("'", `'\\''`)}'`;
}

// kubectl returns a command line. context is the name of a member cluster, fleet, or undefined for the gateway.
export function kubectl(context: string | undefined, ...args: (string | undefined | false)[]): string {
  const words = args.filter((a): a is string => typeof a === 'string' && a !== '').map(quote);
  return ['kubectl', ...(context ? ['--context', quote(context)] : []), ...words].join(' ');
}

export function AsKubectl(props: { command: string }) {
  const [isOpen, setOpen] = useState(false);
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(props.command);
    setCopied(true);
  };
  return (
    <div class="as-kubectl">
      <button type="button" aria-expanded={isOpen} onClick={() => { setOpen(!isOpen); setCopied(false); }}>
        Show as kubectl
      </button>
      {isOpen && (
        <div class="command">
          <code>{props.command}</code>
          <button type="button" onClick={copy}>{isCopied ? 'Copied' : 'Copy'}</button>
        </div>
      )}
    </div>
  );
}
