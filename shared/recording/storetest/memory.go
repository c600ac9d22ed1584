// Package storetest tests stores of recordings, and has one in memory for other tests.
package storetest

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/clusterpass/clusterpass/shared/recording"
)

// Memory is a recording.Store. Its zero value is empty.
type Memory struct {
	// BeforePut, unless nil, is called before each Put stores a part. Its error is that of Put.
	BeforePut func(ctx context.Context, id string, number int) error

	mu    sync.Mutex
	parts map[string]map[int][]byte
}

var _ recording.Store = (*Memory)(nil)

// Put implements recording.Store.
func (m *Memory) Put(ctx context.Context, id string, number int, part []byte) error {
	if m.BeforePut != nil {
		if err := m.BeforePut(ctx, id, number); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch _, exists := m.parts[id][number]; {
	case ctx.Err() != nil:
		return ctx.Err()
	case !recording.ValidID(id) || number < 0:
		return recording.InvalidID(id)
	case exists:
		return recording.ErrExists
	}
	m.set(id, number, bytes.Clone(part))
	return nil
}

// Set replaces a part, or removes it if part is nil. Tests damage recordings with it.
func (m *Memory) Set(id string, number int, part []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if part == nil {
		delete(m.parts[id], number)
		return
	}
	m.set(id, number, part)
}

func (m *Memory) set(id string, number int, part []byte) {
	if m.parts == nil {
		m.parts = map[string]map[int][]byte{}
	}
	if m.parts[id] == nil {
		m.parts[id] = map[int][]byte{}
	}
	m.parts[id][number] = part
}

// Get implements recording.Store.
func (m *Memory) Get(ctx context.Context, id string, number int) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	part, ok := m.parts[id][number]
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case !recording.ValidID(id) || number < 0:
		return nil, recording.InvalidID(id)
	case !ok:
		return nil, recording.ErrNotFound
	}
	return bytes.Clone(part), nil
}

// Parts implements recording.Store.
func (m *Memory) Parts(ctx context.Context, id string) ([]recording.Part, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case !recording.ValidID(id):
		return nil, recording.InvalidID(id)
	case len(m.parts[id]) == 0:
		return nil, recording.ErrNotFound
	}
	var parts []recording.Part
	for number, part := range m.parts[id] {
		parts = append(parts, recording.Part{Number: number, Size: int64(len(part)), Stored: time.Now()})
	}
	slices.SortFunc(parts, func(a, b recording.Part) int { return a.Number - b.Number })
	return parts, nil
}

// List implements recording.Store.
func (m *Memory) List(ctx context.Context, prefix string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var ids []string
	for id := range m.parts {
		if strings.HasPrefix(id, prefix) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// Days implements recording.Store.
func (m *Memory) Days(ctx context.Context, prefix string) ([]string, error) {
	ids, err := m.List(ctx, prefix)
	return recording.DaysOf(ids), err
}
