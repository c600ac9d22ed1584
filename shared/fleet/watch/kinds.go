package watch

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type kinds map[uint64]metav1.TypeMeta // by the ids of members

// kindVotes decides which kind the objects of a watch have. Only the first kind of each member counts.
type kindVotes struct {
	objects  kinds           // of members' first objects
	lists    kinds           // of members' lists and bookmarks
	object   metav1.TypeMeta // the kind of most members' objects
	bookmark metav1.TypeMeta // the same, with lists of members without objects
}

func newKindVotes() kindVotes { return kindVotes{objects: kinds{}, lists: kinds{}} }

// record fails if the kind of an object differs from that of most members.
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

// majority counts one vote of each member, in the first map that has it. On a tie, the first registered cluster wins.
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
