// Types of the Kubernetes API that the console reads. Fields that no view reads are absent.

export interface ObjectMeta {
  name: string;
  namespace?: string;
  uid?: string;
  resourceVersion?: string;
  creationTimestamp?: string;
  deletionTimestamp?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  ownerReferences?: OwnerReference[];
  managedFields?: unknown[];
}

export interface OwnerReference {
  apiVersion: string;
  kind: string;
  name: string;
  uid: string;
  controller?: boolean;
}

export interface ListMeta {
  resourceVersion?: string;
  continue?: string;
  remainingItemCount?: number;
}

export interface KubeObject {
  apiVersion: string;
  kind: string;
  metadata: ObjectMeta;
  [field: string]: unknown;
}

export interface List<T> {
  metadata: ListMeta;
  items: T[];
}

export interface Condition {
  type: string;
  status: 'True' | 'False' | 'Unknown';
  reason?: string;
  message?: string;
  lastTransitionTime?: string;
}

export interface Status {
  kind: 'Status';
  code?: number;
  reason?: string;
  message?: string;
  details?: { name?: string; kind?: string; causes?: { field?: string; message?: string; reason?: string }[] };
}

export interface ColumnDefinition {
  name: string;
  type: string;
  format?: string;
  description?: string;
  priority?: number;
}

export interface TableRow {
  cells: unknown[];
  object: { metadata: ObjectMeta };
}

export interface Table {
  kind: 'Table';
  metadata: ListMeta;
  columnDefinitions?: ColumnDefinition[];
  rows?: TableRow[];
}

export type EventType = 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK';

export interface WatchEvent<T> {
  type: EventType;
  object: T;
}
