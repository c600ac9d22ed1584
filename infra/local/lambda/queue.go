package lambda

import (
	"context"
	"errors"
	"slices"
	"time"
)

// acquire is tryAcquire, except that it waits in a queue of at most MaxQueue, for QueueTimeout at most. Errors are
// ErrThrottled, ErrClosed, or that of ctx.
func (f *Function) acquire(ctx context.Context) (*process, error) {
	f.mu.Lock()
	p, err := (*process)(nil), ErrThrottled
	if len(f.queue) == 0 {
		p, err = f.tryAcquire()
	}
	if !errors.Is(err, ErrThrottled) || len(f.queue) >= f.cfg.MaxQueue {
		f.mu.Unlock()
		return p, err
	}
	wake := make(chan struct{}, 1)
	f.queue = append(f.queue, wake)
	f.mu.Unlock()
	timeout := time.NewTimer(f.cfg.QueueTimeout)
	defer timeout.Stop()
	for {
		err = ErrThrottled
		select {
		case <-wake:
		case <-timeout.C:
			f.leaveQueue(wake)
			return nil, err
		case <-ctx.Done():
			f.leaveQueue(wake)
			return nil, ctx.Err()
		}
		f.mu.Lock()
		if p, err = f.tryAcquire(); !errors.Is(err, ErrThrottled) {
			f.dequeue(wake)
			f.mu.Unlock()
			return p, err
		}
		f.mu.Unlock()
	}
}

func (f *Function) leaveQueue(wake chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dequeue(wake)
}

// dequeue removes a waiter and wakes the next one, for which there may be another process. mu must be locked.
func (f *Function) dequeue(wake chan struct{}) {
	f.queue = slices.DeleteFunc(f.queue, func(t chan struct{}) bool { return t == wake })
	f.wakeFirst()
}

// wakeFirst must run with mu locked after a process became idle, a slot became free, or the Function was closed.
func (f *Function) wakeFirst() {
	if len(f.queue) == 0 {
		return
	}
	select {
	case f.queue[0] <- struct{}{}:
	default: // it is awake
	}
}
