package watch

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kinds maps members, by their ids, to the kind of objects that they send.
type kinds map[uint64]metav1.TypeMeta

// kindVotes decides which kind the objects of a watch have. The first kind that a member sends counts, so that a member
// that changes its kind affects itself alone.
type kindVotes struct {
	objects  kinds           // of members' first objects
	lists    kinds           // of members' lists and bookmarks
	object   metav1.TypeMeta // the kind of most members' objects
	bookmark metav1.TypeMeta // the same, with lists of members without objects
}

func newKindVotes() kindVotes { return kindVotes{objects: kinds{}, lists: kinds{}} }

// record counts the kind in an event of a member. It fails if the kind of an object differs from that of most members.
func (v *kindVotes) record(e event) error {
	isObject := e.typ == added || e.typ == modified || e.typ == deleted
	votes := v.lists
	switch {
	case e.kind.Kind == "" && isObject:
		return errors.New("one of its objects has no kind or a duplicate one")
	case e.kind.Kind == "":
		return nil
	}
	if isObject {
		votes = v.objects
	}
	if _, hasVoted := votes[e.from.ID]; !hasVoted {
		votes[e.from.ID] = e.kind
		v.object, v.bookmark = majority(v.objects), majority(v.objects, v.lists)
	}
	if isObject && v.object != e.kind {
		return fmt.Errorf("one of its objects has the kind %.100q of %.100q, but those of most clusters have %.100q of "+
			"%.100q",
			e.kind.Kind, e.kind.APIVersion, v.object.Kind, v.object.APIVersion)
	}
	return nil
}

// majority returns the most frequent kind. A member has one vote, in the first map that has it. On a tie, the kind of
// the cluster that was registered first wins.
func majority(sources ...kinds) metav1.TypeMeta {
	votes, count := kinds{}, map[metav1.TypeMeta]int{}
	for _, source := range sources {
		for id, kind := range source {
			if _, ok := votes[id]; !ok {
				votes[id] = kind
				count[kind]++
			}
		}
	}
	var kind metav1.TypeMeta
	for _, id := range slices.Sorted(maps.Keys(votes)) {
		if count[votes[id]] > count[kind] {
			kind = votes[id]
		}
	}
	return kind
}
