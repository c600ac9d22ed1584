package audit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// maxShort is the number of bytes of every text of an event that a sink gets after it has rejected the whole event.
const maxShort = 256

// caller returns the name of the user, or the hash of a token that only the member can verify. It returns "" for an
// unidentified client.
func (e *Event) caller() string { return cmp.Or(e.User.Username, e.Annotations[TokenHashAnnotation]) }

// mapTexts replaces every text that a client may have chosen. It changes nothing that another event may share.
func (e *Event) mapTexts(f func(string) string) {
	for _, text := range []*string{&e.RequestURI, &e.Verb, &e.UserAgent} {
		*text = f(*text)
	}
	e.Annotations = maps.Clone(e.Annotations)
	for k, v := range e.Annotations {
		e.Annotations[k] = f(v)
	}
	e.User.mapTexts(f)
	if e.ImpersonatedUser != nil {
		u := *e.ImpersonatedUser
		u.mapTexts(f)
		e.ImpersonatedUser = &u
	}
	if e.ResponseStatus != nil {
		s := *e.ResponseStatus
		s.Message = f(s.Message)
		e.ResponseStatus = &s
	}
	if e.ObjectRef != nil {
		o := *e.ObjectRef
		for _, text := range []*string{&o.Resource, &o.Namespace, &o.Name, &o.APIGroup, &o.APIVersion, &o.Subresource} {
			*text = f(*text)
		}
		e.ObjectRef = &o
	}
}

// mapTexts omits Extra, whose keys a client may have chosen.
func (u *User) mapTexts(f func(string) string) {
	u.Username, u.UID, u.Extra = f(u.Username), f(u.UID), nil
	u.Groups = slices.Clone(u.Groups)
	for i, group := range u.Groups {
		u.Groups[i] = f(group)
	}
}

// cutUser returns u with at most maxUser bytes in all. "…" replaces what is missing at the end of a text or a list.
func cutUser(u User) User {
	if u.size() <= maxUser {
		return u
	}
	left := maxUser
	out := User{Username: cut(u.Username, maxText), UID: cut(u.UID, maxText), Extra: map[string][]string{}}
	out.Groups = cutList(u.Groups, &left)
	for _, key := range slices.Sorted(maps.Keys(u.Extra)) {
		if left -= len(key) + overhead; left < 0 {
			out.Extra[missing] = []string{missing}
			break
		}
		out.Extra[cut(key, maxText)] = cutList(u.Extra[key], &left)
	}
	return out
}

const (
	missing  = "…"
	overhead = 3 // bytes of an element in JSON, beside its text
)

func (u *User) size() int {
	size := len(u.Username) + len(u.UID) + sizeOf(u.Groups)
	for key, values := range u.Extra {
		size += len(key) + overhead + sizeOf(values)
	}
	return size
}

func sizeOf(texts []string) (size int) {
	for _, s := range texts {
		size += len(s) + overhead
	}
	return size
}

// cutList returns the first texts that have at most left bytes together, and subtracts their size from left.
func cutList(texts []string, left *int) []string {
	out := make([]string, 0, len(texts))
	for _, s := range texts {
		s = cut(s, maxText)
		if *left -= len(s) + overhead; *left < 0 {
			return append(out, missing)
		}
		out = append(out, s)
	}
	return out
}

// shortLine returns the event in line with short texts of printable characters.
func shortLine(line []byte) ([]byte, error) {
	var e Event
	if err := json.Unmarshal(line, &e); err != nil {
		return nil, err
	}
	e.mapTexts(func(s string) string { return cut(strings.Map(printable, s), maxShort) })
	for _, u := range []*User{&e.User, e.ImpersonatedUser} {
		if left := maxShort; u != nil {
			u.Groups = cutList(u.Groups, &left)
		}
	}
	if e.Annotations == nil {
		e.Annotations = map[string]string{}
	}
	e.Annotations[ShortenedAnnotation] = "true"
	return encode(&e)
}

func printable(r rune) rune {
	if r >= ' ' && r <= '~' || string(r) == missing {
		return r
	}
	return '?'
}

// encode returns e as a line of JSON.
func encode(e *Event) ([]byte, error) {
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false) // each & of a URL would become six bytes
	err := enc.Encode(e)
	return line.Bytes(), err
}
