package fleet

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Which cluster had an object the last time is kept, so that one cluster that hangs does not hold up each read of what others have. It is
// never the answer: that cluster is asked, as all are, and only when it has said again that the object is there, the others are not
// waited for beyond grace. Writes and streams wait for all.
const (
	ownersMax = 10_000
	ownersTTL = 5 * time.Minute
	grace     = 2 * time.Second
)

// lookup is a digest of what names one object, and of who asks for it: nothing that one was told serves another, and names, which are as long as
// callers like, are not kept.
type lookup [sha256.Size]byte

// whereabouts is where an object was, and until when that is of use.
type whereabouts struct {
	id    uint64
	until time.Time
}

// owners keeps whereabouts. The wall clock counts, since the monotonic one stands still in a frozen function.
type owners struct {
	seen *lru.Cache[lookup, whereabouts]
}

func newOwners() owners {
	seen, err := lru.New[lookup, whereabouts](ownersMax)
	if err != nil {
		panic(err) // the size is not positive
	}
	return owners{seen}
}

func (o owners) put(key lookup, id uint64) {
	o.seen.Add(key, whereabouts{id, time.Now().Add(ownersTTL).Round(0)})
}

// get returns the id of the cluster that had the object.
func (o owners) get(key lookup) (uint64, bool) {
	w, ok := o.seen.Get(key)
	return w.id, ok && time.Now().Round(0).Before(w.until)
}

// errElsewhere ends questions whose answer is not waited for, since the object is where it was.
var errElsewhere = errors.New("the object is elsewhere")

// caller is a digest of all that members are told of who calls.
func (q *ask) caller() [sha256.Size]byte {
	return sum(q.user.Name, q.user.UID, q.user.Groups, q.user.Extra, q.user.Impersonator)
}

// sum is a digest of strings, and of what has only these.
func sum(of ...any) [sha256.Size]byte {
	data, err := json.Marshal(of)
	if err != nil {
		panic(err) // strings always marshal
	}
	return sha256.Sum256(data)
}

// key names the object that is asked for.
func (q *ask) key() lookup {
	return sum(q.caller(), q.res.APIGroup, q.res.Resource, q.res.Namespace, q.res.Name)
}

// reads reports whether the call changes nothing, so that where the object was may shorten it.
func (q *ask) reads() bool {
	return !q.strict && (q.r.Method == http.MethodGet || q.r.Method == http.MethodHead) && len(q.header["Upgrade"]) == 0 && q.res.Verb != "proxy"
}
