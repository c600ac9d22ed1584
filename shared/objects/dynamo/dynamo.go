// Package dynamo stores objects in one DynamoDB table. Its partition key pk and sort key sk are strings:
//
//	pk              sk             item
//	clusters        member1        the object clusters/member1
//	#revision       #revision      the revision of the store
//	#log/0          000…00042      the log entry of revision 42; 1024 entries share a pk
//
// Invariants:
//   - A write is one transaction that increases the revision by one, changes the object and adds a log entry. It fails
//     if the object has another revision than expected. A write is applied once: all retries of the SDK have one token.
//   - Writers of different objects conflict, because each changes the revision. They retry within the call.
//   - Even a strongly consistent query may see a part of a transaction. List compares its result with the newest log
//     entries. If a query of Watch misses an entry, Watch reads it by key to check that it exists, and queries again.
//   - DynamoDB removes expired log entries in any order. Watch returns ErrCompacted if an entry that it needs is gone.
package dynamo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/clusterpass/clusterpass/shared/awsclient"
	"github.com/clusterpass/clusterpass/shared/objects"
)

// Config configures a Store.
type Config struct {
	// AWS is the region, endpoint and credentials, as awsclient.Load returns them.
	AWS aws.Config
	// Table is the name of the table.
	Table string
	// History is the minimum time that the log keeps an entry. 0 means 24 h. DynamoDB may remove it days later.
	History time.Duration
	// MinPoll and MaxPoll limit the pause of a watch between two reads of the revision. The pause grows while there are no
	// writes, and a write of this Store ends it. Watches of one Store share a read that is at most half a pause old.
	// MinPoll and MaxPoll default to 200 ms and 2 s.
	MinPoll, MaxPoll time.Duration
	// Now is the clock for the expiry of log entries; nil means time.Now.
	Now func() time.Time
}

// Store implements objects.Store. It starts no goroutine and needs no Close.
type Store struct {
	client *dynamodb.Client
	cfg    Config
	// timeout limits Get, Revision, each write, and each read of a Watch. A List has six times as long. It is
	// awsclient.CallTimeout except in tests.
	timeout time.Duration
	poll    poller
	hint    atomic.Uint64 // the last known revision of the store, which may be outdated
	writing chan struct{} // admits one goroutine to commit, and guards hasRivals
	// hasRivals reports whether the last successful write needed several attempts. Then other processes may be writing.
	hasRivals bool
}

var _ objects.Store = (*Store)(nil)

// New returns a Store. It sends no request. Every method except EnsureTable needs an existing table.
func New(cfg Config) (*Store, error) {
	if cfg.Table == "" {
		return nil, errors.New("no DynamoDB table: Config.Table is empty")
	}
	if cfg.AWS.Region == "" {
		return nil, errors.New("no AWS region; set AWS_REGION")
	}
	cfg.History = cmp.Or(cfg.History, 24*time.Hour)
	cfg.MinPoll = cmp.Or(cfg.MinPoll, 200*time.Millisecond)
	cfg.MaxPoll = max(cfg.MinPoll, cmp.Or(cfg.MaxPoll, 2*time.Second))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Store{
		client: dynamodb.NewFromConfig(awsclient.Configure(cfg.AWS)), cfg: cfg, timeout: awsclient.CallTimeout,
		poll: newPoller(), writing: make(chan struct{}, 1),
	}, nil
}

// Get implements objects.Store.
func (s *Store) Get(ctx context.Context, key string) (objects.Object, error) {
	if err := objects.ValidKey(key); err != nil {
		return objects.Object{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	o, err := s.get(ctx, key)
	if err != nil {
		return objects.Object{}, s.fail("get", key, err)
	}
	return o, nil
}

// Revision implements objects.Store.
func (s *Store) Revision(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	rev, err := s.revision(ctx)
	if err != nil {
		return 0, s.fail("read", "the revision", err)
	}
	return rev, nil
}

// List implements objects.Store.
func (s *Store) List(ctx context.Context, prefix string, limit int, cont string) (objects.Page, error) {
	resource, name, err := objects.SplitPrefix(prefix)
	if err != nil {
		return objects.Page{}, err
	}
	from := objects.Continue{}
	if cont != "" {
		if from, err = objects.ParseContinue(cont, prefix); err != nil {
			return objects.Page{}, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 6*s.timeout) // several requests, since a response has at most 1 MB
	defer cancel()
	current, err := s.revision(ctx)
	if err != nil {
		return objects.Page{}, s.fail("list", prefix, err)
	}
	if cont == "" {
		from.Revision = current
	}
	found, more, err := s.query(ctx, resource, name, from.After, limit)
	last := ""
	if len(found) > 0 {
		last = found[len(found)-1].Key // the next page starts after it, even if applyNewestWrites removes that object
	}
	if err == nil {
		found, err = s.applyNewestWrites(ctx, found, more, prefix, from.After, current)
	}
	if err != nil {
		return objects.Page{}, s.fail("list", prefix, err)
	}
	if limit > 0 && len(found) > limit {
		found, more = found[:limit], true
		last = found[limit-1].Key
	}
	page := objects.Page{Objects: found, Revision: from.Revision}
	if more {
		page.Remaining = -1
		page.Continue = objects.Continue{Revision: from.Revision, After: last}.String()
	}
	return page, nil
}

func (s *Store) query(ctx context.Context, resource, name, after string, limit int) (found []objects.Object, more bool,
	err error) {
	in := &dynamodb.QueryInput{
		TableName: &s.cfg.Table, ConsistentRead: aws.Bool(true),
		KeyConditionExpression:    aws.String("pk = :pk"),
		ExpressionAttributeValues: item{":pk": str(resource)},
	}
	if name != "" { // DynamoDB refuses an empty value
		in.KeyConditionExpression = aws.String("pk = :pk AND begins_with(sk, :sk)")
		in.ExpressionAttributeValues[":sk"] = str(name)
	}
	if after != "" {
		in.ExclusiveStartKey = objectKey(after)
	}
	for {
		if limit > 0 { // read one object more, to learn whether the list continues
			in.Limit = aws.Int32(int32(min(limit-len(found), 1<<20)) + 1)
		}
		out, err := s.client.Query(ctx, in)
		if err != nil {
			return nil, false, err
		}
		for _, it := range out.Items {
			o, err := decodeObject(it)
			if err != nil {
				return nil, false, err
			}
			found = append(found, o)
		}
		if limit > 0 && len(found) > limit {
			return found[:limit], true, nil
		}
		if out.LastEvaluatedKey == nil {
			return found, false, nil
		}
		in.ExclusiveStartKey = out.LastEvaluatedKey
	}
}

// applyNewestWrites corrects the result of a query that missed some of the newest writes. A watch that begins after
// revision rev would not deliver them.
func (s *Store) applyNewestWrites(ctx context.Context, found []objects.Object, more bool, prefix, after string,
	rev uint64) ([]objects.Object, error) {
	to := "" // the last key of this page, if there are more pages
	if more {
		to = found[len(found)-1].Key
	}
	newest, err := s.newestEvents(ctx, rev)
	if err != nil {
		return nil, err
	}
	for key, e := range newest {
		if !strings.HasPrefix(key, prefix) || key <= after || to != "" && key > to {
			continue
		}
		at, ok := search(found, key)
		if ok && found[at].Revision >= e.Object.Revision || !ok && e.Type == objects.Deleted {
			continue // the query did not miss the write
		}
		o, err := s.get(ctx, key)
		switch {
		case errors.Is(err, objects.ErrNotFound) && ok:
			found = slices.Delete(found, at, at+1)
		case errors.Is(err, objects.ErrNotFound):
		case err != nil:
			return nil, err
		case ok:
			found[at] = o
		default:
			found = slices.Insert(found, at, o)
		}
	}
	return found, nil
}

// maxMissedWrites is the number of newest writes that List checks. A query may miss a write whose transaction DynamoDB
// is still applying, although the revision item already has the revision of that write. There are few such writes,
// because each transaction changes the revision item.
const maxMissedWrites = 4

// newestEvents returns, by key, the events of the last maxMissedWrites writes up to revision lastRev. Of several writes
// to one object, it returns the last. It uses BatchGetItem instead of a query: reads of single items include each
// write up to the revision that GetItem returned. It skips entries that DynamoDB has removed: no query misses such old
// writes.
func (s *Store) newestEvents(ctx context.Context, lastRev uint64) (map[string]objects.Event, error) {
	var keys []item
	for rev := lastRev; rev > 0 && lastRev-rev < maxMissedWrites; rev-- {
		keys = append(keys, logKey(rev))
	}
	newest := map[string]objects.Event{}
	for attempt := 1; len(keys) > 0; attempt++ {
		out, err := s.client.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{
			RequestItems: map[string]types.KeysAndAttributes{s.cfg.Table: {Keys: keys, ConsistentRead: aws.Bool(true)}},
		})
		if err != nil {
			return nil, err
		}
		for _, it := range out.Responses[s.cfg.Table] {
			e, err := decodeEvent(it)
			if err != nil {
				return nil, err
			}
			if e.Object.Revision > newest[e.Object.Key].Object.Revision {
				newest[e.Object.Key] = e
			}
		}
		if keys = out.UnprocessedKeys[s.cfg.Table].Keys; len(keys) > 0 {
			if err := awsclient.Sleep(ctx, awsclient.Pause(attempt)); err != nil {
				return nil, err
			}
		}
	}
	return newest, nil
}

func search(found []objects.Object, key string) (int, bool) {
	return slices.BinarySearchFunc(found, key, func(o objects.Object, k string) int { return strings.Compare(o.Key, k) })
}

func (s *Store) get(ctx context.Context, key string) (objects.Object, error) {
	it, err := s.item(ctx, objectKey(key))
	if err != nil {
		return objects.Object{}, err
	}
	if it == nil {
		return objects.Object{}, objects.ErrNotFound
	}
	return decodeObject(it)
}

func (s *Store) revision(ctx context.Context) (uint64, error) {
	it, err := s.item(ctx, revisionKey())
	if err != nil || it == nil {
		return 0, err
	}
	rev, err := number(it, attrRevision)
	if err == nil {
		s.hint.Store(rev)
	}
	return rev, err
}

func (s *Store) item(ctx context.Context, key item) (item, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	out, err := s.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &s.cfg.Table, Key: key, ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return nil, err
	}
	if len(out.Item) == 0 {
		return nil, nil
	}
	return out.Item, nil
}

// fail wraps err with one of the errors of package objects, unless it is context.Canceled.
func (s *Store) fail(op, key string, err error) error {
	for _, reason := range []error{
		objects.ErrNotFound, objects.ErrExists, objects.ErrConflict, objects.ErrCompacted, objects.ErrUnavailable,
		objects.ErrInvalid, context.Canceled,
	} {
		if errors.Is(err, reason) {
			return fmt.Errorf("%s %s: %w", op, key, err)
		}
	}
	var noTable *types.ResourceNotFoundException
	if errors.As(err, &noTable) {
		return fmt.Errorf("%s %s: %w: the table %s does not exist, or is still being created: %w", op, key,
			objects.ErrUnavailable, s.cfg.Table, err)
	}
	switch fault := awsclient.FaultOf(err); fault {
	case awsclient.Forbidden:
		return fmt.Errorf("%s %s: %w: %w", op, key, objects.ErrForbidden, err)
	case awsclient.Throttled, awsclient.Unavailable:
		return fmt.Errorf("%s %s: %w", op, key, objects.Unavailable(err, fault.RetryAfter()))
	}
	return fmt.Errorf("%s %s: %w: %w", op, key, objects.ErrInvalid, err)
}
