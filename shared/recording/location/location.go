// Package location opens the store of recordings that a configuration names.
package location

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/clusterpass/clusterpass/shared/awsclient"
	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/recording/dirstore"
	"github.com/clusterpass/clusterpass/shared/recording/s3store"
)

// Location is where recordings are stored: dir:PATH or s3:BUCKET[/PREFIX][,key=KEY]. The zero value means nowhere.
type Location struct {
	Kind  string // "dir", "s3" or ""
	Where string // a path, or a bucket with a prefix
	// Key is the ARN, ID or alias of the KMS key of new objects. Empty means the default of the bucket.
	Key string
}

// The kinds of a Location.
const (
	Dir = "dir"
	S3  = "s3"
)

// In returns the location beside stores in a directory.
func In(dir string) Location { return Location{Kind: Dir, Where: filepath.Join(dir, "recordings")} }

// Decode implements envconfig.Decoder and the parsing of a flag.
func (l *Location) Decode(v string) error {
	if v == "" {
		*l = Location{}
		return nil
	}
	kind, where, _ := strings.Cut(v, ":")
	if where == "" || kind != Dir && kind != S3 {
		return fmt.Errorf("%.64q: want dir:PATH or s3:BUCKET[/PREFIX]", v)
	}
	*l = Location{Kind: kind, Where: where}
	if kind == Dir {
		return nil // a path may contain any character
	}
	bucket, option, found := strings.Cut(where, ",")
	if key, ok := strings.CutPrefix(option, "key="); found {
		if !ok || key == "" {
			return fmt.Errorf("option %.64q: want key= and a KMS key, such as s3:recordings,key=alias/recordings", option)
		}
		l.Where, l.Key = bucket, key
	}
	return nil
}

// String returns the form that Decode parses.
func (l Location) String() string {
	if l.Kind == "" {
		return ""
	}
	s := l.Kind + ":" + l.Where
	if l.Key != "" {
		s += ",key=" + l.Key
	}
	return s
}

// Retention limits the recordings in a directory. In S3, a lifecycle rule of the bucket does.
type Retention struct {
	MaxAge  time.Duration // the maximum age of the last part of a recording; 0 means no limit
	MaxSize int64         // the maximum size of all recordings in bytes; 0 means no limit
}

// The default limits of a directory.
const (
	DefaultMaxAge  = 30 * 24 * time.Hour
	DefaultMaxSize = 10 << 30
)

// Store is an open store of recordings.
type Store interface {
	recording.Store
	// Run enforces the Retention until ctx ends.
	Run(ctx context.Context)
	Close() error
}

// Open opens the store at l for a recorder. It creates a directory. The AWS SDK reads its standard environment.
func Open(ctx context.Context, l Location, r Retention, log *slog.Logger) (Store, error) {
	if l.Kind == Dir {
		path, err := filepath.Abs(l.Where)
		if err != nil {
			return nil, err
		}
		return dirstore.Open(dirstore.Config{Path: path, MaxAge: r.MaxAge, MaxSize: r.MaxSize, Log: log})
	}
	return openS3(ctx, l)
}

// OpenExisting opens the store at l for readers.
func OpenExisting(ctx context.Context, l Location) (Store, error) {
	if l.Kind == Dir {
		return dirstore.OpenExisting(l.Where)
	}
	return openS3(ctx, l)
}

func openS3(ctx context.Context, l Location) (Store, error) {
	if l.Kind != S3 {
		return nil, errors.New(
			"open the store of recordings: no location is configured; want dir:PATH or s3:BUCKET[/PREFIX]")
	}
	cfg, err := awsclient.Load(ctx)
	if err != nil {
		return nil, err
	}
	bucket, prefix, _ := strings.Cut(l.Where, "/")
	s, err := s3store.New(s3store.Config{AWS: cfg, Bucket: bucket, Prefix: strings.Trim(prefix, "/"), KMSKey: l.Key})
	if err != nil {
		return nil, err
	}
	return remote{s}, nil
}

// remote is a store that keeps its own retention.
type remote struct{ *s3store.Store }

func (remote) Run(context.Context) {}

func (remote) Close() error { return nil }
