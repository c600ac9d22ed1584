// Plot draws values over time as a line. A value of undefined is a gap with a mark.

export interface PlotProps {
  values: (number | undefined)[];
  label: string;
  width?: number;
  height?: number;
  // slots is the number of values that fill the width.
  slots?: number;
}

export function Plot({ values, label, width = 120, height = 24, slots = 60 }: PlotProps) {
  const shown = values.slice(-slots);
  const top = Math.max(1, ...shown.map((v) => v ?? 0));
  const x = (i: number) => ((slots - shown.length + i) * width) / Math.max(1, slots - 1);
  const y = (v: number) => height - 2 - ((height - 4) * v) / top;
  let line = '';
  let isGap = true;
  shown.forEach((v, i) => {
    if (v !== undefined) {
      line += `${isGap ? 'M' : 'L'}${x(i).toFixed(1)} ${y(v).toFixed(1)}`;
      if (isGap && shown[i + 1] === undefined) {
        line += 'h0.1';
      }
    }
    isGap = v === undefined;
  });
  return (
    <svg class="plot" role="img" aria-label={label} width={width} height={height} viewBox={`0 0 ${width} ${height}`}>
      <path class="line" d={line} />
      {shown.map((v, i) => v === undefined && <circle key={i} class="gap" cx={x(i)} cy={height - 3} r="2" />)}
    </svg>
  );
}

// milliseconds returns a duration for people.
export function milliseconds(ms: number | undefined): string {
  if (ms === undefined) {
    return '–';
  }
  return ms < 10 ? `${ms.toFixed(1)} ms` : ms < 10_000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}
