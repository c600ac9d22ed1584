package recording

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The kinds of a session.
const (
	Exec        = "exec"
	Attach      = "attach" // also of an ephemeral container
	PortForward = "portforward"
)

// Info describes a session. It is stored in the header of its recording.
type Info struct {
	// ID names the recording. Recorder.Begin sets it to the value of NewID if it is empty.
	ID        string   `json:"id"`
	User      string   `json:"user"`
	Groups    []string `json:"groups,omitempty"`
	Pass      string   `json:"pass,omitempty"`      // the name of the caller's pass, if any
	RequestID string   `json:"requestID,omitempty"` // the Audit-Id of the request
	Cluster   string   `json:"cluster"`
	Namespace string   `json:"namespace,omitempty"`
	Pod       string   `json:"pod,omitempty"`
	Container string   `json:"container,omitempty"`
	Kind      string   `json:"kind"` // Exec, Attach or PortForward
	Command   []string `json:"command,omitempty"`
	// CommandSHA256 is set by Recorder.Begin if it shortens Command to 16 KiB. It is the SHA-256 of the whole Command in
	// hexadecimal, with a zero byte after each argument.
	CommandSHA256 string `json:"commandSHA256,omitempty"`
	TTY           bool   `json:"tty,omitempty"`
	HasInput      bool   `json:"hasInput,omitempty"` // the session has a standard input
	// RecordsInput makes Session.Input record. Without it, Session.Input ignores the bytes.
	RecordsInput bool      `json:"recordsInput,omitempty"`
	Start        time.Time `json:"start"` // Recorder.Begin sets a zero time to the current one

	// Impersonator is the user that impersonates User (--as). "" means none.
	Impersonator string `json:"impersonator,omitempty"`
	Unverified
}

// Unverified describes the token of a caller whom only the member identifies. Info.User is "" then. The author of the
// token chose all but the digest.
type Unverified struct {
	TokenSHA256 string `json:"unverifiedTokenSHA256,omitempty"` // hexadecimal, of all bytes
	Issuer      string `json:"unverifiedIssuer,omitempty"`
	Subject     string `json:"unverifiedSubject,omitempty"`
	TokenID     string `json:"unverifiedTokenID,omitempty"`
}

// Caller returns the user, with the impersonator if there is one. Without a user, it returns the subject that the token
// claims, or its digest.
func (i *Info) Caller() string {
	switch {
	case i.Impersonator != "":
		return i.User + ", impersonated by " + i.Impersonator
	case i.TokenSHA256 == "":
		return i.User
	case i.Subject != "":
		return "unverified " + i.Subject
	}
	const prefix = 16 // digits
	return "unverified token " + i.TokenSHA256[:min(prefix, len(i.TokenSHA256))]
}

// Limits of a recording.
const (
	// MaxPart is the maximum size of a part in bytes. A recorder ends a part at about half of it.
	MaxPart = 2 << 20
	// StoreTimeout is how long a part may wait for a slot of its Recorder, and then how long its write may last. After
	// that, its session fails.
	StoreTimeout = 10 * time.Second
)

// Part describes a stored part.
type Part struct {
	Number int
	Size   int64 // bytes
	Stored time.Time
}

// Store stores the parts of recordings. It is safe for concurrent use. An id must be valid by ValidID, and a number at
// least 0. Its errors may wrap ErrNotFound, ErrExists and those of a context.
type Store interface {
	// Put stores a new part durably, or returns ErrExists. It does not change part, and does not keep it after a success.
	// After another error, the part may have been stored. Put may return after ctx has ended, as a Recorder does not wait.
	Put(ctx context.Context, id string, number int, part []byte) error
	// Get returns a part of at most MaxPart bytes, or ErrNotFound.
	Get(ctx context.Context, id string, number int) ([]byte, error)
	// Parts returns the parts of a recording by their numbers, or ErrNotFound if there are none.
	Parts(ctx context.Context, id string) ([]Part, error)
	// List returns the ids of all recordings that start with prefix, sorted. IDs begin with the time of the start, as in
	// 20060102T150405Z, so that a prefix selects a day.
	List(ctx context.Context, prefix string) ([]string, error)
	// Days returns the prefixes of ids, in the form 20060102, of the days that have recordings, sorted. It returns those
	// that start with prefix, which has at most seven digits.
	Days(ctx context.Context, prefix string) ([]string, error)
}

// Keeper is a Store that deletes recordings by itself.
type Keeper interface {
	// Keep prevents the deletion of a recording until release is called, which may be called once.
	Keep(id string) (release func())
}

// Errors of stores and sessions.
var (
	ErrNotFound = errors.New("recording not found")
	ErrExists   = errors.New("part of a recording exists already")
	ErrClosed   = errors.New("the recording is closed")
)

// partSuffix ends the name of a part.
const partSuffix = ".cast"

// dayLen is the length of the day in an id.
const dayLen = len("20060102")

// DaysOf returns the days of sorted ids for Store.Days.
func DaysOf(ids []string) []string {
	var days []string
	for _, id := range ids {
		days = append(days, id[:dayLen])
	}
	return slices.Compact(days)
}

// Newest returns the ids that start with prefix, in batches of one day, the latest first. It stops after an error.
func Newest(ctx context.Context, store Store, prefix string) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		days, err := []string{prefix}, error(nil)
		if len(prefix) < dayLen {
			if days, err = store.Days(ctx, prefix); err != nil {
				yield(nil, err)
				return
			}
		}
		for _, day := range slices.Backward(days) {
			ids, err := store.List(ctx, day)
			slices.Reverse(ids)
			if !yield(ids, err) || err != nil {
				return
			}
		}
	}
}

// PartName returns the name of the file or object of a part.
func PartName(number int) string { return fmt.Sprintf("%08d%s", number, partSuffix) }

// PartNumber returns the number of the part whose name PartName returned.
func PartNumber(name string) (number int, ok bool) {
	number, err := strconv.Atoi(strings.TrimSuffix(name, partSuffix))
	return number, err == nil && number >= 0 && PartName(number) == name
}

// InvalidID returns the error of a Store for an id or a number that is not valid.
func InvalidID(id string) error {
	return fmt.Errorf("the id of a recording %.64q is not valid; clusterpass recording list prints them", id)
}
