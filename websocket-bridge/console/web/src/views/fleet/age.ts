// Ages as kubectl shows them.

// age returns the time since a moment in milliseconds, such as 5d3h, or <unknown>.
export function age(since: number, now = Date.now()): string {
  const seconds = Math.floor((now - since) / 1_000);
  if (Number.isNaN(seconds)) {
    return '<unknown>';
  }
  if (seconds < -1) {
    return '<invalid>';
  }
  if (seconds < 120) {
    return `${Math.max(0, seconds)}s`;
  }
  const minutes = Math.floor(seconds / 60);
  if (minutes < 10) {
    return pair(minutes, 'm', seconds % 60, 's');
  }
  if (minutes < 180) {
    return `${minutes}m`;
  }
  const hours = Math.floor(minutes / 60);
  if (hours < 8) {
    return pair(hours, 'h', minutes % 60, 'm');
  }
  if (hours < 48) {
    return `${hours}h`;
  }
  const days = Math.floor(hours / 24);
  if (days < 8) {
    return pair(days, 'd', hours % 24, 'h');
  }
  if (days < 730) {
    return `${days}d`;
  }
  const years = Math.floor(days / 365);
  return years < 8 ? pair(years, 'y', days % 365, 'd') : `${years}y`;
}

function pair(large: number, largeUnit: string, small: number, smallUnit: string): string {
  return `${large}${largeUnit}${small > 0 ? `${small}${smallUnit}` : ''}`;
}
