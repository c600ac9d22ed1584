package dynamo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/clusterpass/clusterpass/shared/awsclient"
	"github.com/clusterpass/clusterpass/shared/objects"
)

const progressEvery = 2 * time.Second

// Changes implements objects.Store.
func (s *Store) Changes(ctx context.Context, from uint64, limit int) ([]objects.Event, uint64, error) {
	return objects.ChangesOf(ctx, s, from, limit)
}

// Watch implements objects.Store. Other Stores' writes are delivered after at most 1.5 times Config.MaxPoll.
func (s *Store) Watch(ctx context.Context, prefix string, from uint64, each func(objects.Event) error,
	progress func(uint64)) error {
	var reported time.Time
	pause := time.Duration(0)
	for {
		written := s.poll.nextWrite()
		current, err := s.pollRevision(ctx, pause/2, from)
		if err != nil {
			return s.fail("watch", prefix, err)
		}
		if from > current {
			return s.fail("watch", prefix, compacted(from, current))
		}
		before := from
		err = s.readLog(ctx, from, current, func(e objects.Event) error {
			from = e.Object.Revision
			if !strings.HasPrefix(e.Object.Key, prefix) {
				return nil
			}
			if err := ctx.Err(); err != nil {
				return stop{err}
			}
			if err := each(e); err != nil {
				return stop{err}
			}
			return nil
		})
		var stopped stop
		if errors.As(err, &stopped) {
			return stopped.error
		} else if err != nil {
			return s.fail("watch", prefix, err)
		}
		if progress != nil && (from > before || time.Since(reported) >= progressEvery) {
			progress(from)
			reported = time.Now()
		}
		if from > before {
			pause = 0
		}
		pause = max(s.cfg.MinPoll, min(pause*3/2, s.cfg.MaxPoll))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-written:
			pause = 0
		case <-time.After(pause):
		}
	}
}

// stop marks an error of the caller's function or of ctx, which Watch returns unchanged.
type stop struct{ error }

func compacted(rev, current uint64) error {
	return fmt.Errorf("%w: revision %d of %d", objects.ErrCompacted, rev, current)
}

// readLog returns ErrCompacted if an entry is missing. to must not exceed the store's revision.
func (s *Store) readLog(ctx context.Context, from, to uint64, each func(objects.Event) error) error {
	for misses := 0; from < to; {
		before := from
		if err := s.readLogShard(ctx, &from, min(to, (from+1)/shard*shard+shard-1), each); err != nil {
			return err
		}
		if from > before {
			misses = 0
			continue
		}
		// A query may see only a part of a transaction. A read of the item sees all of it.
		it, err := s.item(ctx, logKey(from+1))
		if err != nil {
			return err
		}
		if misses++; it == nil && misses > 2 {
			return compacted(from, to)
		}
		if err := awsclient.Sleep(ctx, awsclient.Pause(misses)); err != nil {
			return err
		}
	}
	return nil
}

// readLogShard stops at a missing entry, and sets from to the last one. All entries must have the same pk.
func (s *Store) readLogShard(ctx context.Context, from *uint64, to uint64, each func(objects.Event) error) error {
	for in := s.logQuery(*from, to); ; {
		ctx, cancel := context.WithTimeout(ctx, s.timeout)
		out, err := s.client.Query(ctx, in)
		cancel()
		if err != nil {
			return err
		}
		for _, it := range out.Items {
			e, err := decodeEvent(it)
			if err != nil {
				return err
			}
			if e.Object.Revision != *from+1 {
				return nil
			}
			if err := each(e); err != nil {
				return err
			}
			*from = e.Object.Revision
		}
		if out.LastEvaluatedKey == nil {
			return nil
		}
		in.ExclusiveStartKey = out.LastEvaluatedKey
	}
}

func (s *Store) logQuery(from, to uint64) *dynamodb.QueryInput {
	return &dynamodb.QueryInput{
		TableName: &s.cfg.Table, ConsistentRead: aws.Bool(true),
		KeyConditionExpression:    aws.String("pk = :pk AND sk BETWEEN :from AND :to"),
		ExpressionAttributeValues: item{":pk": str(logPK(to)), ":from": str(logSK(from + 1)), ":to": str(logSK(to))},
	}
}

type poller struct {
	gate    chan struct{} // admits one reader of the revision at a time
	mu      sync.Mutex
	rev     uint64
	at      time.Time     // start of the read; zero if rev must not be used
	written chan struct{} // closed and replaced after a write of this Store
}

func newPoller() poller { return poller{gate: make(chan struct{}, 1), written: make(chan struct{})} }

func (p *poller) nextWrite() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.written
}

func (p *poller) announceWrite() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = time.Time{}
	close(p.written)
	p.written = make(chan struct{})
}

func (p *poller) latest(since time.Time) (rev uint64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rev, !p.at.Before(since) && !p.at.IsZero()
}

// pollRevision reads the revision, unless the last one read is at most age old and at least atLeast.
func (s *Store) pollRevision(ctx context.Context, age time.Duration, atLeast uint64) (uint64, error) {
	select {
	case s.poll.gate <- struct{}{}:
		defer func() { <-s.poll.gate }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	start := time.Now()
	if rev, ok := s.poll.latest(start.Add(-age)); ok && rev >= atLeast {
		return rev, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	rev, err := s.revision(ctx)
	if err != nil {
		return 0, err
	}
	s.poll.mu.Lock()
	defer s.poll.mu.Unlock()
	s.poll.rev, s.poll.at = rev, start
	return rev, nil
}
