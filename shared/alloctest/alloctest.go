// Package alloctest measures the memory that a test uses.
package alloctest

import "runtime"

// Allocated returns how many bytes the process allocates while do runs, including other goroutines.
func Allocated(do func()) uint64 {
	before := read()
	do()
	return read().TotalAlloc - before.TotalAlloc
}

// InUse returns how many bytes of the heap are in use after a garbage collection.
func InUse() uint64 {
	runtime.GC()
	return read().HeapAlloc
}

func read() (m runtime.MemStats) {
	runtime.ReadMemStats(&m)
	return m
}
