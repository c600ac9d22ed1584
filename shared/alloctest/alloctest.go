// Package alloctest measures the memory that a test uses.
package alloctest

import (
	"runtime"
	"testing"
)

// Allocated returns how many bytes the process allocates while do runs, including other goroutines.
func Allocated(do func()) uint64 {
	before := read()
	do()
	return read().TotalAlloc - before.TotalAlloc
}

// PerCall returns how often a call allocates, and how many bytes, as means of this many calls for each of the two.
func PerCall(calls int, call func()) (allocations, bytes float64) {
	allocations = testing.AllocsPerRun(calls, call)
	return allocations, float64(Allocated(func() {
		for range calls {
			call()
		}
	})) / float64(calls)
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
