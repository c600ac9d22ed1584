package watch

import "github.com/clusterpass/clusterpass/shared/fleet/cursor"

// progress records what was delivered to the client. doc.go has its invariants. Members are identified by their ids.
type progress struct {
	version cursor.Version  // see invariant 1
	text    cursor.Text     // of version
	single  bool            // versions are the only member's own
	shown   map[uint64]bool // members of which the client has seen an object
	pending map[uint64]bool // members that the watch began with and that are not complete
}

func newProgress(single bool) progress {
	return progress{
		version: cursor.Version{}, single: single, shown: map[uint64]bool{}, pending: map[uint64]bool{},
	}
}

func (p *progress) restore(id uint64, before string) {
	if before != "" {
		p.version[id] = before
	} else {
		delete(p.version, id)
	}
}

// canResume reports whether a client can resume the watch from p.version. That version must contain each member of
// which the client has seen an object.
func (p *progress) canResume() bool {
	for id := range p.shown {
		if p.version[id] == "" {
			return false
		}
	}
	return true
}

// resumable returns the version from which a client can resume after an event of a member. It is "" while a list is
// being delivered. Events of a difference have the version before the difference.
func (p *progress) resumable(id uint64) string {
	if p.version[id] == "" || !p.canResume() {
		return ""
	}
	return p.delivered()
}

func (p *progress) delivered() string {
	if p.single {
		return p.version.ClientForm(true)
	}
	return p.text.Of(p.version)
}

// objectVersion returns the function that replaces resourceVersions. In a list of several members, none of them
// resumes.
func (p *progress) objectVersion(resumable string) func(own string) string {
	switch {
	case resumable != "":
		return func(string) string { return resumable }
	case p.single:
		return withoutComposite
	}
	return func(own string) string {
		if !cursor.ValidOwn(own) {
			return withoutComposite(own)
		}
		return p.version.WithObject(own).String()
	}
}

// withoutComposite returns "" for a composite, with which a member could decide where clients resume watches of others.
func withoutComposite(own string) string {
	if cursor.Composite(own) {
		return ""
	}
	return own
}
