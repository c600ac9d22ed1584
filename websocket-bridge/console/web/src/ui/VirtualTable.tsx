// VirtualTable shows any number of rows of one height. Only the rows in sight are in the document.
import type { ComponentChildren } from 'preact';
import { useEffect, useId, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { adopt } from './sheet.ts';
import css from './VirtualTable.css' with { type: 'text' };

adopt(css);

// rowHeight is the height of a row in pixels, as in the style sheet.
export const rowHeight = 30;
const overscan = 4; // rows above and below those in sight
const lowest = 240; // pixels that the table has at least
const margin = 16; // pixels between the table and the end of the window
// tallest is the height in pixels that every browser can show. Rows beyond it are not reachable.
const tallest = 15_000_000;

export interface VirtualColumn {
  name: string;
  title?: string | undefined;
  // width is the number of characters that the column shows at least.
  width: number;
}

export interface Sort {
  column: string;
  isDescending: boolean;
}

export interface VirtualTableProps {
  label: string;
  columns: VirtualColumn[];
  rowCount: number;
  cell: (row: number, column: number) => ComponentChildren;
  // title is the tooltip of a cell.
  title?: (row: number, column: number) => string | undefined;
  rowClass?: (row: number) => string | undefined;
  sort?: Sort | undefined;
  onSort?: (column: string) => void;
  // onOpen is called for the row of the Enter key.
  onOpen?: (row: number) => void;
}

// useFill returns the height from the top of an element to the end of the window.
function useFill(element: { current: HTMLElement | null }): number {
  const [height, setHeight] = useState(lowest);
  useLayoutEffect(() => {
    const measure = () => {
      const top = (element.current?.getBoundingClientRect().top ?? 0) + scrollY;
      setHeight(Math.max(lowest, innerHeight - top - margin));
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(document.body);
    addEventListener('resize', measure);
    return () => {
      observer.disconnect();
      removeEventListener('resize', measure);
    };
  }, []);
  return height;
}

export function VirtualTable(props: VirtualTableProps) {
  const viewport = useRef<HTMLDivElement>(null);
  const id = useId();
  const [first, setFirst] = useState(0);
  const [active, setActive] = useState(-1);
  const height = useFill(viewport);
  const { columns } = props;
  const rowCount = Math.min(props.rowCount, Math.floor(tallest / rowHeight));

  const slots = Math.ceil(height / rowHeight) + 2 * overscan;
  const start = Math.max(0, Math.min(first, rowCount - 1) - overscan);
  const end = Math.min(rowCount, start + slots);
  const rows = [];
  for (let row = start; row < end; row++) {
    rows.push(row);
  }

  useEffect(() => {
    if (active >= rowCount) {
      setActive(rowCount - 1);
    }
  }, [active >= rowCount]);

  const activate = (row: number) => {
    const next = Math.max(0, Math.min(rowCount - 1, row));
    setActive(next);
    const element = viewport.current;
    if (!element) {
      return;
    }
    const above = next * rowHeight;
    const below = above + 2 * rowHeight; // the head covers one row
    if (above < element.scrollTop) {
      element.scrollTop = above;
    } else if (below > element.scrollTop + element.clientHeight) {
      element.scrollTop = below - element.clientHeight;
    }
  };

  const onKeyDown = (event: KeyboardEvent) => {
    if (event.target !== viewport.current || event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    const page = Math.max(1, Math.floor(height / rowHeight) - 2);
    const targets: Record<string, number> = {
      ArrowDown: active + 1, ArrowUp: active - 1, PageDown: active + page, PageUp: active - page, Home: 0, End: rowCount - 1,
    };
    const target = targets[event.key];
    if (target !== undefined && rowCount > 0) {
      event.preventDefault();
      activate(target);
    } else if (event.key === 'Enter' && active >= 0 && active < rowCount) {
      event.preventDefault();
      props.onOpen?.(active);
    }
  };

  const template = columns.map((c) => `minmax(calc(${c.width}ch + 20px), ${c.width}fr)`).join(' ');
  const minimum = `calc(${columns.reduce((sum, c) => sum + c.width, 0)}ch + ${20 * columns.length}px)`;
  return (
    <div
      ref={viewport} class="virtual-table" role="grid" tabIndex={0} aria-label={props.label}
      aria-rowcount={props.rowCount + 1} aria-colcount={columns.length}
      {...(active >= start && active < end && { 'aria-activedescendant': `${id}-${active}` })}
      style={{ height: `${height}px`, '--columns': template, '--minimum': minimum }}
      onScroll={(event) => setFirst(Math.floor(event.currentTarget.scrollTop / rowHeight))}
      onKeyDown={onKeyDown}
    >
      <div role="rowgroup" class="virtual-head">
        <div role="row" aria-rowindex={1} class="virtual-row">
          {columns.map((c) => <Head key={c.name} column={c} sort={props.sort} onSort={props.onSort} />)}
        </div>
      </div>
      <div role="rowgroup" class="virtual-body" style={{ height: `${rowCount * rowHeight}px` }}>
        <div role="presentation" style={{ transform: `translateY(${start * rowHeight}px)` }}>
          {rows.map((row) => (
            <div
              key={row % slots} id={`${id}-${row}`} role="row" aria-rowindex={row + 2}
              class={`virtual-row ${row === active ? 'active' : ''} ${props.rowClass?.(row) ?? ''}`}
            >
              {columns.map((c, column) => (
                <div key={c.name} role="gridcell" title={props.title?.(row, column)}>{props.cell(row, column)}</div>
              ))}
            </div>
          ))}
        </div>
      </div>
    </div>
  );
}

function Head(props: { column: VirtualColumn; sort: Sort | undefined; onSort: ((column: string) => void) | undefined }) {
  const { column, sort, onSort } = props;
  const isSorted = sort?.column === column.name;
  const order = isSorted ? (sort.isDescending ? 'descending' : 'ascending') : 'none';
  return (
    <div role="columnheader" aria-sort={order} title={column.title}>
      {onSort
        ? (
          <button type="button" onClick={() => onSort(column.name)}>
            {column.name}{isSorted && <span aria-hidden="true">{sort.isDescending ? ' ▾' : ' ▴'}</span>}
          </button>
        )
        : column.name}
    </div>
  );
}
