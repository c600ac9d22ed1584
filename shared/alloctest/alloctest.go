// Package alloctest measures memory in tests of what must be bounded.
package alloctest

import "runtime"

// Allocated returns how many bytes are allocated while do runs, also by others.
func Allocated(do func()) uint64 {
	before := read()
	do()
	return read().TotalAlloc - before.TotalAlloc
}

// Held returns how many bytes of the heap are still in use after a collection.
func Held() uint64 {
	runtime.GC()
	return read().HeapAlloc
}

func read() (m runtime.MemStats) {
	runtime.ReadMemStats(&m)
	return m
}
