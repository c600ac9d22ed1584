// Package recording records sessions such as kubectl exec, and verifies and reads recordings. It knows no sockets:
// callers pass the bytes of each stream. Read Info, Recorder and Session first, then Verify and Reader.
//
// Invariants:
//   - A recording is a sequence of parts in a Store. The parts, one after the other, are a file in asciicast v2.
//   - Each part after the first has the SHA-256 of the part before it. Each part is signed with Ed25519.
//   - The last part has an event that ends the recording. A recording without it was cut, or its session still runs.
//   - Bytes are recorded exactly. Those that are no UTF-8, and runs of control characters, are in base64. Players of
//     asciicast ignore such events.
//   - An event is stored within two seconds, if the Store is fast and its caller has a free slot. A session fails if a
//     part gets no slot within StoreTimeout, or is not stored within StoreTimeout.
//   - Callers share the slots, and all sessions have maxMemory. A session beyond it has about smallPart and an event.
//
// The section "Session recordings" of docs/explanation/security.md has the threat model.
package recording
