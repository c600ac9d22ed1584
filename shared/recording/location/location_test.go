package location

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
)

func TestDecode(t *testing.T) {
	for text, want := range map[string]Location{
		"":                        {},
		"dir:/var/lib/r":          {Kind: Dir, Where: "/var/lib/r"},
		"dir:a,b":                 {Kind: Dir, Where: "a,b"},
		"s3:bucket":               {Kind: S3, Where: "bucket"},
		"s3:bucket/a/b":           {Kind: S3, Where: "bucket/a/b"},
		"s3:bucket,key=alias/key": {Kind: S3, Where: "bucket", Key: "alias/key"},
		"s3:bucket/a,key=arn:aws:kms:eu-central-1:1:key/k": {
			Kind: S3, Where: "bucket/a", Key: "arn:aws:kms:eu-central-1:1:key/k",
		},
	} {
		var got Location
		if err := got.Decode(text); err != nil || got != want || got.String() != text {
			t.Errorf("%q is %+v, %v, and prints %q; want %+v", text, got, err, got, want)
		}
	}
	for _, text := range []string{"dir:", "dir", "s3:", "gs:bucket", "bucket", "s3:bucket,key=", "s3:bucket,kms=key"} {
		var got Location
		if err := got.Decode(text); err == nil {
			t.Errorf("%q is accepted as %+v", text, got)
		}
	}
}

func TestOpen(t *testing.T) {
	t.Setenv("AWS_REGION", "eu-central-1")
	dir := In(t.TempDir())
	if _, err := OpenExisting(t.Context(), dir); err == nil {
		t.Error("a reader creates the directory")
	}
	for name, l := range map[string]Location{
		"directory": dir, "directory again": dir, "bucket": {Kind: S3, Where: "bucket/prefix/", Key: "alias/key"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(t.Context(), l, Retention{MaxAge: DefaultMaxAge, MaxSize: DefaultMaxSize}, nil)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			s.Run(ctx)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			read, err := OpenExisting(t.Context(), l)
			if err != nil {
				t.Fatal(err)
			}
			if err := read.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	_, err := Open(t.Context(), Location{}, Retention{}, nil)
	if err == nil || !strings.Contains(err.Error(), "dir:PATH") {
		t.Errorf("no location: %v", err)
	}
	t.Chdir(t.TempDir())
	s, err := Open(t.Context(), Location{Kind: Dir, Where: "relative"}, Retention{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	if found, err := filepath.Glob("*"); err != nil || len(found) != 1 || found[0] != "relative" {
		t.Errorf("directories %v, %v", found, err)
	}
}
