package dynamo

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/clusterpass/clusterpass/shared/awsclient/mototest"
	"github.com/clusterpass/clusterpass/shared/objects"
)

// The following tests cover behaviour of AWS that moto lacks.

func TestAnswersAreLost(t *testing.T) {
	f, s := startMoto(t)
	f.Lose("TransactWriteItems", 2)
	o, err := s.Update(t.Context(), "things/there", []byte("once"), 1)
	if err != nil || o.Revision != 2 {
		t.Fatalf("update: revision %d, %v; want 2", o.Revision, err)
	}
	f.Lose("TransactWriteItems", 1)
	if o, err = s.Create(t.Context(), "things/new", nil); err != nil || o.Revision != 3 {
		t.Fatalf("create: revision %d, %v; want 3", o.Revision, err)
	}
	f.Lose("TransactWriteItems", 1)
	if o, err = s.Delete(t.Context(), "things/there", 2); err != nil || o.Revision != 4 {
		t.Fatalf("delete: revision %d, %v; want 4", o.Revision, err)
	}
	if rev, err := s.Revision(t.Context()); err != nil || rev != 4 {
		t.Errorf("revision %d, %v; want each write once", rev, err)
	}
	f.Refuse("InternalServerError", 2)
	if _, err := s.Create(t.Context(), "things/there", nil); err != nil {
		t.Errorf("create after errors of AWS: %v", err)
	}
}

func TestWriterThatNeverGetsThrough(t *testing.T) {
	f, s := startMoto(t)
	f.Conflict(1 << 30)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := s.Update(ctx, "things/there", []byte("never"), 1)
	if !errors.Is(err, objects.ErrUnavailable) || objects.RetryAfter(err) == 0 {
		t.Errorf("update: %v, want ErrUnavailable and when to try again", err)
	}
	f.Conflict(2)
	if _, err := s.Update(t.Context(), "things/there", []byte("at last"), 1); err != nil {
		t.Errorf("update beside two others: %v", err)
	}
}

// A query between the parts of a transaction misses writes of its revision, and List must add them.
func TestListShowsWhatTheQueryDoesNotYet(t *testing.T) {
	f, s := startMoto(t)
	list := func() string {
		t.Helper()
		page, err := s.List(t.Context(), "things/", 0, "")
		if err != nil {
			t.Fatal(err)
		}
		out := fmt.Sprint(page.Revision)
		for _, o := range page.Objects {
			out += fmt.Sprintf(" %s=%s@%d", o.Key, o.Value, o.Revision)
		}
		return out
	}
	if got, want := list(), "1 things/there=v@1"; got != want {
		t.Fatalf("list %s, want %s", got, want)
	}
	for _, tt := range []struct {
		write func() (objects.Object, error)
		want  string
	}{
		{
			func() (objects.Object, error) { return s.Create(t.Context(), "things/new", []byte("n")) },
			"2 things/new=n@2 things/there=v@1",
		},
		{
			func() (objects.Object, error) { return s.Update(t.Context(), "things/there", []byte("w"), 1) },
			"3 things/new=n@2 things/there=w@3",
		},
		{func() (objects.Object, error) { return s.Delete(t.Context(), "things/there", 3) }, "4 things/new=n@2"},
		{func() (objects.Object, error) { return s.Create(t.Context(), "other/new", nil) }, "5 things/new=n@2"},
	} {
		if _, err := tt.write(); err != nil {
			t.Fatal(err)
		}
		f.Lag(1)
		if got := list(); got != tt.want {
			t.Errorf("list %s, want %s", got, tt.want)
		}
		if got := list(); got != tt.want {
			t.Errorf("list without lag %s, want %s", got, tt.want)
		}
	}
}

func TestWatchWaitsForWhatTheQueryDoesNotShowYet(t *testing.T) {
	f, s := startMoto(t)
	done := errors.New("done")
	watch := func(from uint64) error {
		return s.Watch(t.Context(), "", from, func(e objects.Event) error {
			if e.Object.Revision == 2 {
				return done
			}
			return nil
		}, nil)
	}
	// The query for revision 2 was answered before it existed.
	in := s.logQuery(1, 2)
	if out, err := s.client.Query(t.Context(), in); err != nil || len(out.Items) != 0 {
		t.Fatalf("query: %v, %v", out, err)
	}
	if _, err := s.Create(t.Context(), "things/new", nil); err != nil {
		t.Fatal(err)
	}
	f.Lag(3)
	if err := watch(1); !errors.Is(err, done) {
		t.Errorf("watch: %v, want the event", err)
	}
}

func TestEntriesExpireInAnyOrder(t *testing.T) {
	_, s := startMoto(t)
	for i := range 5 {
		if _, err := s.Create(t.Context(), fmt.Sprintf("things/%d", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	expire(t, s, 4)
	var got []uint64
	err := s.Watch(t.Context(), "", 1, func(e objects.Event) error { got = append(got, e.Object.Revision); return nil },
		nil)
	if !errors.Is(err, objects.ErrCompacted) || fmt.Sprint(got) != "[2 3]" {
		t.Errorf("watch over a gap: %v, %v; want [2 3] and ErrCompacted", got, err)
	}
	compact(t, s, 6)
	if page, err := s.List(t.Context(), "things/", 0, ""); err != nil || len(page.Objects) != 6 || page.Revision != 6 {
		t.Errorf("list without a log: %+v, %v", page, err)
	}
	if _, err := s.Create(t.Context(), "things/more", nil); err != nil {
		t.Errorf("create without a log: %v", err)
	}
}

func TestLogEntriesExpire(t *testing.T) {
	_, s := startMoto(t)
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	s.cfg.Now, s.cfg.History = func() time.Time { return now }, time.Hour
	if _, err := s.Create(t.Context(), "things/new", nil); err != nil {
		t.Fatal(err)
	}
	it, err := s.item(t.Context(), logKey(2))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := number(it, attrExpires); err != nil || got != uint64(now.Add(time.Hour).Unix()) {
		t.Errorf("expires %d, %v", got, err)
	}
	ttl, err := s.client.DescribeTimeToLive(t.Context(), &dynamodb.DescribeTimeToLiveInput{TableName: &s.cfg.Table})
	if err != nil {
		t.Fatal(err)
	}
	if got := aws.ToString(ttl.TimeToLiveDescription.AttributeName); got != attrExpires {
		t.Errorf("the table lets items expire by %q", got)
	}
	if err := s.EnsureTable(t.Context()); err != nil {
		t.Errorf("ensure a table that is there: %v", err)
	}
}

// TestShards: the log changes its partition key every 1024 writes, and revisions may exceed 32 bits.
func TestShards(t *testing.T) {
	_, open := front(t)
	s := open()
	for _, start := range []uint64{shard - 3, 3*shard - 1, 1<<40 - 2} {
		it := revisionKey()
		it[attrRevision] = num(start)
		if _, err := s.client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &s.cfg.Table, Item: it}); err != nil {
			t.Fatal(err)
		}
		for i := range 6 {
			if _, err := s.Create(t.Context(), fmt.Sprintf("things/%d-%d", start, i), nil); err != nil {
				t.Fatal(err)
			}
		}
		done, next := errors.New("done"), start+1
		err := s.Watch(t.Context(), "", start, func(e objects.Event) error {
			if e.Object.Revision != next {
				t.Errorf("revision %d, want %d", e.Object.Revision, next)
			}
			if next++; next > start+6 {
				return done
			}
			return nil
		}, nil)
		if !errors.Is(err, done) {
			t.Fatal(err)
		}
	}
}

func TestNoTable(t *testing.T) {
	s, err := New(Config{AWS: mototest.Config(moto.URL), Table: "nowhere"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "things/a"); !errors.Is(err, objects.ErrUnavailable) ||
		!strings.Contains(err.Error(), "table nowhere") {
		t.Errorf("get: %v, want ErrUnavailable and the table's name", err)
	}
}

// TestWatchesShareTheirPolls: many watches cost as much as one.
func TestWatchesShareTheirPolls(t *testing.T) {
	f, s := startMoto(t)
	poll := func(wantCalls int) {
		t.Helper()
		before := f.Calls("")
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() {
				if rev, err := s.pollRevision(t.Context(), time.Hour, 1); err != nil || rev == 0 {
					t.Errorf("polled %d, %v", rev, err)
				}
			})
		}
		wg.Wait()
		if n := f.Calls("") - before; n != wantCalls {
			t.Errorf("%d calls for 32 watches, want %d", n, wantCalls)
		}
	}
	poll(1)
	poll(0)
	if _, err := s.Create(t.Context(), "things/new", nil); err != nil {
		t.Fatal(err)
	}
	poll(1)
	if rev, err := s.pollRevision(t.Context(), time.Hour, 2); err != nil || rev != 2 {
		t.Errorf("polled %d, %v; want 2", rev, err)
	}
}

// TestEnvironment: the standard environment of the SDK is sufficient, including a private CA.
func TestEnvironment(t *testing.T) {
	f, open := front(t)
	table := open().cfg.Table
	srv := httptest.NewTLSServer(f)
	defer srv.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{
		"AWS_ENDPOINT_URL": srv.URL, "AWS_REGION": "eu-west-1", "AWS_CA_BUNDLE": ca,
		"AWS_ACCESS_KEY_ID":     "AKIAIOSFODNN7EXAMPLE",
		"AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI", "AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
	} {
		t.Setenv(k, v)
	}
	cfg, err := awsconfig.LoadDefaultConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{AWS: cfg, Table: table + strconv.Itoa(1)})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.EnsureTable(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), "things/a", nil); err != nil {
		t.Fatal(err)
	}
	if f.Calls("TransactWriteItems") == 0 {
		t.Error("the endpoint of the environment got no call")
	}
}
