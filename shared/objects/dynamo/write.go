package dynamo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	smithyrand "github.com/aws/smithy-go/rand"

	"github.com/clusterpass/clusterpass/shared/awsclient"
	"github.com/clusterpass/clusterpass/shared/objects"
)

// Create implements objects.Store.
func (s *Store) Create(ctx context.Context, key string, value []byte) (objects.Object, error) {
	return s.write(ctx, "create", key, value, func(context.Context) (objects.Event, error) {
		return objects.Event{Type: objects.Created, Object: objects.Object{Key: key, Value: bytes.Clone(value)}}, nil
	})
}

// Update implements objects.Store.
func (s *Store) Update(ctx context.Context, key string, value []byte, rev uint64) (objects.Object, error) {
	return s.write(ctx, "update", key, value, func(ctx context.Context) (objects.Event, error) {
		before, err := s.getAt(ctx, key, rev)
		after := before
		after.Value = bytes.Clone(value)
		return objects.Event{Type: objects.Updated, Object: after, Previous: before.Value}, err
	})
}

// Delete implements objects.Store.
func (s *Store) Delete(ctx context.Context, key string, rev uint64) (objects.Object, error) {
	return s.write(ctx, "delete", key, nil, func(ctx context.Context) (objects.Event, error) {
		before, err := s.getAt(ctx, key, rev)
		return objects.Event{Type: objects.Deleted, Object: before, Previous: before.Value}, err
	})
}

func (s *Store) getAt(ctx context.Context, key string, rev uint64) (objects.Object, error) {
	o, err := s.get(ctx, key)
	if err == nil && o.Revision != rev {
		err = conflict(rev, o.Revision)
	}
	return o, err
}

func conflict(want, is uint64) error {
	return fmt.Errorf("%w: want revision %d, is %d", objects.ErrConflict, want, is)
}

func (s *Store) write(ctx context.Context, op, key string, value []byte,
	prepare func(context.Context) (objects.Event, error)) (objects.Object, error) {
	if err := errors.Join(objects.ValidKey(key), objects.ValidValue(value)); err != nil {
		return objects.Object{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	e, err := prepare(ctx)
	if err == nil {
		e, err = s.commit(ctx, e)
	}
	if err != nil {
		return objects.Object{}, s.fail(op, key, err)
	}
	return e.Object, nil
}

// commit writes e in a transaction. It tries again if DynamoDB has cancelled the transaction because of a write to
// another object, a conflict with another transaction, or throttling. It returns any other error at once.
//
// Every write changes the store's revision, so only one of several concurrent transactions succeeds. Two rules keep any
// writer from starving. A writer waits before each new attempt, and the pauses become shorter. After a write that
// needed several attempts, the next write of the same process begins with a pause.
func (s *Store) commit(ctx context.Context, e objects.Event) (objects.Event, error) {
	select {
	case s.writing <- struct{}{}:
		defer func() { <-s.writing }()
	case <-ctx.Done():
		return e, ctx.Err()
	}
	before := e.Object.Revision
	current := s.hint.Load() // if it is outdated, the first attempt fails and returns the current revision
	for attempt := 0; ; attempt++ {
		if attempt > 0 || s.hasRivals {
			if err := awsclient.Sleep(ctx, wait(attempt)); err != nil {
				return e,
					fmt.Errorf("stopped after %d attempts, because of other writers or throttling: %w", attempt,
						objects.Unavailable(err, awsclient.Throttled.RetryAfter()))
			}
		}
		e.Object.Revision = current + 1
		if e.Type == objects.Created {
			e.Object.Created = current + 1
		}
		err := s.transact(ctx, e, before)
		if err == nil {
			s.hasRivals = attempt > 0
			s.hint.Store(current + 1)
			s.poll.announceWrite()
			return e, nil
		}
		var cancelled *types.TransactionCanceledException
		if !errors.As(err, &cancelled) {
			return e, err
		}
		next, err := explainCancellation(cancelled, e, before)
		if err == nil && next == current { // a conflict or a throttle, which does not show the revision
			next, err = s.revision(ctx)
		}
		if err != nil {
			return e, err
		}
		current = next
	}
}

// wait returns the pause before an attempt. A transaction lasts only a few milliseconds.
func wait(attempt int) time.Duration {
	const first, least = 80 * time.Millisecond, 10 * time.Millisecond
	return rand.N(max(least, first/time.Duration(attempt+1))) //nolint:gosec // no secret depends on it
}

func (s *Store) transact(ctx context.Context, e objects.Event, before uint64) error {
	token, err := smithyrand.NewUUID(smithyrand.Reader).GetUUID()
	if err != nil {
		return err
	}
	current := e.Object.Revision - 1
	counter := &types.Update{
		TableName: &s.cfg.Table, Key: revisionKey(),
		UpdateExpression:                    aws.String("SET #r = :next"),
		ConditionExpression:                 aws.String("#r = :now"),
		ExpressionAttributeNames:            map[string]string{"#r": attrRevision},
		ExpressionAttributeValues:           item{":now": num(current), ":next": num(current + 1)},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	if current == 0 {
		counter.ConditionExpression = aws.String("attribute_not_exists(#r)")
		delete(counter.ExpressionAttributeValues, ":now")
	}
	_, err = s.client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{
		ClientRequestToken: &token,
		TransactItems: []types.TransactWriteItem{
			{Update: counter},
			s.change(e, before),
			{Put: &types.Put{TableName: &s.cfg.Table, Item: encodeEvent(e, s.cfg.Now().Add(s.cfg.History))}},
		},
	})
	return err
}

func (s *Store) change(e objects.Event, before uint64) types.TransactWriteItem {
	const old = types.ReturnValuesOnConditionCheckFailureAllOld
	names := map[string]string{"#r": attrRevision}
	same, revision := aws.String("#r = :before"), item{":before": num(before)}
	switch e.Type {
	case objects.Created:
		return types.TransactWriteItem{Put: &types.Put{
			TableName: &s.cfg.Table, Item: encodeObject(e.Object), ReturnValuesOnConditionCheckFailure: old,
			ConditionExpression: aws.String("attribute_not_exists(#r)"), ExpressionAttributeNames: names,
		}}
	case objects.Updated:
		return types.TransactWriteItem{Put: &types.Put{
			TableName: &s.cfg.Table, Item: encodeObject(e.Object), ReturnValuesOnConditionCheckFailure: old,
			ConditionExpression: same, ExpressionAttributeNames: names, ExpressionAttributeValues: revision,
		}}
	default:
		return types.TransactWriteItem{Delete: &types.Delete{
			TableName: &s.cfg.Table, Key: objectKey(e.Object.Key), ReturnValuesOnConditionCheckFailure: old,
			ConditionExpression: same, ExpressionAttributeNames: names, ExpressionAttributeValues: revision,
		}}
	}
}

// explainCancellation returns the store's current revision if the transaction may be repeated. If the cancellation does
// not show that revision, it returns the revision that the transaction expected. It returns an error if the object was
// changed, or if DynamoDB refuses the transaction for another reason.
func explainCancellation(err *types.TransactionCanceledException, e objects.Event, before uint64) (uint64, error) {
	next := e.Object.Revision - 1
	for i, r := range err.CancellationReasons {
		switch code := aws.ToString(r.Code); code {
		case "None", "TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded":
		case "ConditionalCheckFailed":
			if i == 0 {
				rev, err := number(r.Item, attrRevision)
				if err == nil {
					next = rev
				}
				continue
			}
			if e.Type == objects.Created {
				return 0, objects.ErrExists
			}
			is, err := number(r.Item, attrRevision)
			if err != nil {
				return 0, objects.ErrNotFound
			}
			return 0, conflict(before, is)
		default:
			return 0,
				fmt.Errorf("%w: DynamoDB refuses the transaction: %s: %s", objects.ErrInvalid, code, aws.ToString(r.Message))
		}
	}
	return next, nil
}
