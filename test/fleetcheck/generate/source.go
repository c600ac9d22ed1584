// Package generate makes random Kubernetes objects for the comparison of the fleet with its clusters.
//
// Invariants:
//   - The same seed and stream give the same objects, on every machine.
//   - Every object has the label [Label], so that a selector excludes objects of other origin.
package generate

import "math/rand/v2"

// Source makes random decisions. It is not safe for concurrent use.
type Source struct{ *rand.Rand }

// New returns the Source of a seed. Each operation has a stream of its own, so that its timing does not change the
// decisions of the next.
func New(seed, stream uint64) *Source { return &Source{rand.New(rand.NewPCG(seed, stream))} }

// Chance reports true once in n times.
func (s *Source) Chance(n int) bool { return s.IntN(n) == 0 }

// Pick returns one of the values. It panics if there is none.
func Pick[T any](s *Source, values []T) T { return values[s.IntN(len(values))] }

// randfill requires a source of math/rand. Seed has no effect, since the stream is chosen before.
type fillSource struct{ *Source }

func (f fillSource) Int63() int64 { return f.Int64() }
func (f fillSource) Seed(int64)   {}
