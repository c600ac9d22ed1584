// The fleet: the kinds that its discovery shows, and a live table of the objects of one kind.
import { parseGroup } from '../../urls.ts';
import type { ViewProps } from '../../router.tsx';
import { adopt } from '../../ui/sheet.ts';
import css from './fleet.css' with { type: 'text' };
import { Kinds } from './Kinds.tsx';
import { Resources } from './Resources.tsx';

adopt(css);

export default function FleetView({ params, query }: ViewProps) {
  const { group, version, resource } = params;
  if (group === undefined || version === undefined || resource === undefined) {
    return <Kinds query={query} />;
  }
  return <Resources group={parseGroup(group)} version={version} resource={resource} query={query} />;
}
