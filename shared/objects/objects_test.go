package objects

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestErrors(t *testing.T) {
	cause := errors.New("cause")
	err := fmt.Errorf("get: %w", Unavailable(cause, 3*time.Second))
	if !errors.Is(err, ErrUnavailable) || !errors.Is(err, cause) || RetryAfter(err) != 3*time.Second {
		t.Errorf("%v, after %v", err, RetryAfter(err))
	}
	if RetryAfter(cause) != 0 || RetryAfter(nil) != 0 {
		t.Error("a hint from nowhere")
	}
}

type numbered struct{ Numbered }

func (numbered) Revision(context.Context) (uint64, error) { return 7, nil }

// TestChangesAfterTheLastRevision fails if the error of a restored store has an absurd number of writes.
func TestChangesAfterTheLastRevision(t *testing.T) {
	_, _, err := ChangesOf(t.Context(), numbered{}, 9, 10)
	if !errors.Is(err, ErrCompacted) || !strings.Contains(err.Error(), "revision 9 exceeds the store's revision 7") {
		t.Error(err)
	}
}

// FuzzValidResource compares validResource with the regular expression of its rule. A resource that the rule refuses
// could leave the directory of the objects.
func FuzzValidResource(f *testing.F) {
	for _, s := range []string{"", "a", "clusters", "a-b.c", "-a", "a-", "a.", "..", "A", "a/b", "a_b", "\xff", "ä"} {
		f.Add(s)
	}
	rule := regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)
	f.Fuzz(func(t *testing.T, resource string) {
		if got, want := validResource(resource), rule.MatchString(resource); got != want {
			t.Fatalf("%q: %t, want %t", resource, got, want)
		}
	})
}

func FuzzContinue(f *testing.F) {
	f.Add("MQ.YS9i", "a/", uint64(7), "a/b")
	f.Fuzz(func(t *testing.T, token, prefix string, rev uint64, after string) {
		if c, err := ParseContinue(token, prefix); err == nil {
			if !strings.HasPrefix(c.After, prefix) || ValidKey(c.After) != nil {
				t.Fatalf("%q continues %s at %+v", token, prefix, c)
			}
		} else if !errors.Is(err, ErrInvalid) {
			t.Fatal(err)
		}
		if ValidKey(after) != nil {
			return
		}
		c := Continue{rev, after}
		got, err := ParseContinue(c.String(), after[:strings.Index(after, "/")+1])
		if err != nil || got != c {
			t.Fatalf("%+v came back as %+v, %v", c, got, err)
		}
	})
}
