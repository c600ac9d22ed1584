// The columns of a table, and the rows that the server sends for them.
import { clusterAnnotation } from '../../api/paths.ts';
import type { ColumnDefinition, ObjectMeta, Table } from '../../api/types.ts';
import { age } from './age.ts';
import type { Cell, Row } from './rows.ts';

export interface Column {
  name: string;
  description: string;
  isWide: boolean; // shown only with wide, as by kubectl get -o wide
  index: number; // of the cell; namespaceIndex for the namespace of the row
  longest: number; // characters of the longest cell so far, at most widest
}

export const namespaceIndex = -1;
const widest = 60;
const narrowest = 4;
const longestCell = 512;
const mostColumns = 100;

interface Item {
  metadata: ObjectMeta;
}

// Columns maps the tables of a list and of a watch to one set of columns. Tables may differ: a cluster of the fleet
// can have further columns.
export class Columns {
  all: Column[] = [];
  readonly #cluster: string;
  #places: number[] = []; // for each column of the last table with definitions, its index here

  // cluster is the cluster of all rows. Empty: the fleet names the cluster of each row.
  constructor(cluster: string) {
    this.#cluster = cluster;
  }

  // rows returns the rows of a table, and adds its columns.
  rows(table: Table | { items?: Item[] }, generation: number): Row[] {
    if (!('rows' in table) && 'items' in table) { // some aggregated APIs have no tables
      this.#define([{ name: 'Name', type: 'string' }, { name: 'Age', type: 'date' }]);
      return (table.items ?? []).map((item) => this.#row([item.metadata.name, ''], item.metadata, generation));
    }
    const { columnDefinitions, rows } = table as Table;
    if (columnDefinitions && columnDefinitions.length > 0) {
      this.#define(columnDefinitions);
    }
    return (rows ?? []).map((row) => this.#row(row.cells, row.object.metadata, generation));
  }

  #define(definitions: ColumnDefinition[]): void {
    const known = new Map(this.all.map((c) => [c.name, c]));
    this.#places = definitions.slice(0, mostColumns).map((d) => {
      let column = known.get(d.name);
      if (!column) {
        column = {
          name: d.name, description: d.description ?? '', isWide: (d.priority ?? 0) > 0,
          index: this.all.length, longest: Math.max(narrowest, d.name.length + 1),
        };
        known.set(d.name, column);
        this.all = [...this.all, column];
      }
      return column.index;
    });
  }

  #row(cells: unknown[], metadata: ObjectMeta, generation: number): Row {
    // Only the fleet's annotation counts: a cluster that is called directly can write any annotation.
    const cluster = this.#cluster || (metadata.annotations?.[clusterAnnotation] ?? '');
    const namespace = metadata.namespace ?? '';
    const values: Cell[] = new Array<Cell>(this.all.length).fill(null);
    this.#places.forEach((place, i) => {
      const value = cellOf(cells[i]);
      values[place] = value;
      const column = this.all[place] as Column;
      const length = typeof value === 'string' ? value.length : value === null ? 0 : String(value).length;
      if (length > column.longest) {
        column.longest = Math.min(widest, length);
      }
    });
    return {
      key: `${cluster}/${namespace}/${metadata.name}`, cluster, namespace, name: metadata.name,
      created: Date.parse(metadata.creationTimestamp ?? ''), isDeleting: metadata.deletionTimestamp !== undefined,
      cells: values, generation, sortNumber: NaN, sortText: '',
    };
  }
}

function cellOf(value: unknown): Cell {
  switch (typeof value) {
    case 'number':
    case 'boolean':
      return value;
    case 'string':
      return shorten(value);
    case 'object':
      return value === null ? null : shorten(JSON.stringify(value));
    default:
      return null;
  }
}

function shorten(text: string): string {
  return text.length > longestCell ? `${text.slice(0, longestCell)}…` : text;
}

// withNamespace returns the columns that are shown, in the order of kubectl.
export function shownColumns(all: Column[], showsNamespace: boolean, isWide: boolean): Column[] {
  const shown = all.filter((c) => isWide || !c.isWide);
  return showsNamespace
    ? [{ name: 'Namespace', description: '', isWide: false, index: namespaceIndex, longest: 20 }, ...shown]
    : shown;
}

// isAge reports whether a column has the age of the object, which the console computes itself: it grows.
export function isAge(column: Column): boolean {
  return column.name === 'Age';
}

// valueOf returns the value of a cell for sorting.
export function valueOf(row: Row, column: Column): Cell {
  if (column.index === namespaceIndex) {
    return row.namespace;
  }
  return isAge(column) && !Number.isNaN(row.created) ? -row.created : row.cells[column.index] ?? null;
}

// textOf returns the text of a cell.
export function textOf(row: Row, column: Column): string {
  if (column.index === namespaceIndex) {
    return row.namespace;
  }
  if (isAge(column) && !Number.isNaN(row.created)) {
    return age(row.created);
  }
  const cell = row.cells[column.index] ?? null;
  return cell === null ? '' : String(cell);
}
