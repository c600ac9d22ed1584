// Package loggroup delivers audit events to a log group of Amazon CloudWatch Logs, which acknowledges them.
//
//   - All Sinks with one StreamPrefix share a log stream for each hour. The first one creates it. AWS limits how many
//     streams are created a second, but not how many programs write into one.
//   - An event has the time of its stage, also if it is delivered later. If CloudWatch finds that time too old or too
//     new, the event gets the present time. Its text keeps its own.
//   - Events that CloudWatch rejects again are reported by their indexes.
package loggroup

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/awsclient"
)

// Limits of PutLogEvents.
// https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_PutLogEvents.html
const (
	maxBatch      = 10_000
	maxBatchBytes = 1 << 20                 // and so of an event
	maxOldEvent   = 256<<10 - eventOverhead // older documentation limits an event to it
	eventOverhead = 26
	maxSpan       = 24 * time.Hour
)

// Config configures a Sink.
type Config struct {
	// AWS is the region, endpoint and credentials, as awsclient.Load returns them.
	AWS aws.Config
	// Group is the name of a log group that exists.
	Group string
	// StreamPrefix is the first part of the names of the log streams, before the date and the hour in UTC.
	StreamPrefix string
}

// ValidGroup reports whether name can be the name of a log group.
func ValidGroup(name string) bool { return valid(name, 512) }

// ValidPrefix reports whether prefix can be a Config.StreamPrefix.
func ValidPrefix(prefix string) bool { return valid(prefix, 256) }

// valid uses no regular expression: one with such a repetition adds over a millisecond to each cold start.
func valid(name string, maxLen int) bool {
	isOther := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-._/#", c)
	}
	return name != "" && len(name) <= maxLen && !strings.ContainsFunc(name, isOther)
}

// Sink is an audit.Sink. It is safe for concurrent use. There is nothing to close.
type Sink struct {
	client *cloudwatchlogs.Client
	cfg    Config
}

// New returns a Sink. It does not connect.
func New(cfg Config) *Sink {
	return &Sink{client: cloudwatchlogs.NewFromConfig(awsclient.Configure(cfg.AWS)), cfg: cfg}
}

var _ audit.Sink = (*Sink)(nil)

// Deliver implements audit.Sink. ctx must have a deadline.
func (s *Sink) Deliver(ctx context.Context, events [][]byte) (accepted int, err error) {
	for accepted < len(events) {
		batch := nextBatch(events[accepted:])
		if len(batch) == 0 {
			return accepted, fmt.Errorf("deliver an audit event of %d bytes: %w: CloudWatch Logs accepts %d",
				len(events[accepted]), audit.ErrRejected, maxBatchBytes-eventOverhead)
		}
		size := len(batch)
		batch, err := s.put(ctx, batch)
		if err == nil && len(batch) > 0 {
			for i := range batch {
				batch[i].at = time.Now()
			}
			batch, err = s.put(ctx, batch)
		}
		if err != nil {
			return accepted, fmt.Errorf("deliver %d audit events to the log group %s: %w", len(batch), s.cfg.Group, err)
		}
		if len(batch) > 0 {
			return accepted + size, rejection(batch, accepted)
		}
		accepted += size
	}
	return accepted, nil
}

// event is one event of a batch.
type event struct {
	index int // among the events of the batch, in the order of Deliver
	at    time.Time
	text  []byte
}

// nextBatch returns the first events that one call can have, by their times. It is empty if the first is too large.
func nextBatch(lines [][]byte) []event {
	var batch []event
	var first, last time.Time
	size := 0
	for i, line := range lines {
		e := event{i, timeOf(line), bytes.TrimSuffix(line, []byte("\n"))}
		if i == 0 || e.at.Before(first) {
			first = e.at
		}
		if i == 0 || e.at.After(last) {
			last = e.at
		}
		size += len(e.text) + eventOverhead
		if len(batch) == maxBatch || size > maxBatchBytes || last.Sub(first) > maxSpan {
			break
		}
		batch = append(batch, e)
	}
	slices.SortStableFunc(batch, func(a, b event) int { return cmp.Compare(a.at.UnixMilli(), b.at.UnixMilli()) })
	return batch
}

// timeOf returns the time of an event's stage, or now if it has none.
func timeOf(line []byte) time.Time {
	var e struct {
		StageTimestamp metav1.MicroTime `json:"stageTimestamp"`
	}
	if err := json.Unmarshal(line, &e); err != nil || e.StageTimestamp.IsZero() {
		return time.Now()
	}
	return e.StageTimestamp.Time
}

// put delivers a batch, and returns the events that CloudWatch rejected for their times. It creates the log stream if
// there is none. With an error, it returns the batch.
func (s *Sink) put(ctx context.Context, batch []event) (rejected []event, err error) {
	stream := s.cfg.StreamPrefix + time.Now().UTC().Format("/2006/01/02/15")
	in := &cloudwatchlogs.PutLogEventsInput{LogGroupName: &s.cfg.Group, LogStreamName: &stream}
	for _, e := range batch {
		in.LogEvents = append(in.LogEvents, types.InputLogEvent{
			Message: aws.String(string(e.text)), Timestamp: aws.Int64(e.at.UnixMilli()),
		})
	}
	for isRetry := false; ; isRetry = true {
		out, err := s.client.PutLogEvents(ctx, in)
		switch code := awsclient.Code(err); {
		case err == nil:
			return outOfTime(batch, out.RejectedLogEventsInfo), nil
		case code == "ResourceNotFoundException" && !isRetry:
			if err := s.createStream(ctx, stream); err != nil {
				return batch, err
			}
		case code == "InvalidParameterException" && mayBeInvalid(batch):
			return batch, fmt.Errorf("%w: %w", audit.ErrRejected, awsclient.Discreet(err))
		default:
			return batch, awsclient.Discreet(err)
		}
	}
}

// mayBeInvalid reports whether CloudWatch may reject the batch because of an event, rather than of the configuration.
// Deliver gets the events of a rejected batch again, one by one.
func mayBeInvalid(batch []event) bool { return len(batch) > 1 || len(batch[0].text) > maxOldEvent }

func (s *Sink) createStream(ctx context.Context, stream string) error {
	_, err := s.client.CreateLogStream(ctx, &cloudwatchlogs.CreateLogStreamInput{
		LogGroupName: &s.cfg.Group, LogStreamName: &stream,
	})
	if err != nil && awsclient.Code(err) != "ResourceAlreadyExistsException" {
		return fmt.Errorf("create the log stream %s: %w", stream, err)
	}
	return nil
}

// outOfTime returns the events of a batch that CloudWatch rejected. Those before an index are too old, and those from
// another index are too new.
func outOfTime(batch []event, info *types.RejectedLogEventsInfo) []event {
	if info == nil {
		return nil
	}
	begin := max(aws.ToInt32(info.TooOldLogEventEndIndex), aws.ToInt32(info.ExpiredLogEventEndIndex))
	end := int32(maxBatch)
	if info.TooNewLogEventStartIndex != nil {
		end = *info.TooNewLogEventStartIndex
	}
	var rejected []event
	for i, e := range batch {
		if i < int(begin) || i >= int(end) {
			rejected = append(rejected, e)
		}
	}
	return rejected
}

// rejection returns the error for events that CloudWatch rejected. skipped is the number of events before their batch.
func rejection(events []event, skipped int) *audit.RejectedError {
	rejected := &audit.RejectedError{Why: "CloudWatch Logs finds their times and the present time too old or too new"}
	for _, e := range events {
		rejected.Events = append(rejected.Events, skipped+e.index)
	}
	slices.Sort(rejected.Events)
	return rejected
}
