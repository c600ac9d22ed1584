package watch

import (
	"errors"
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

type listing struct {
	*merge.Source
	answer *members.Answer
	object merge.Object // valid until advance
	at     identity     // of object
	atEnd  bool
}

type identity struct{ key, uid, version string }

func (l *listing) close() { l.answer.Close() }

// advance reads the next object. Keys must grow, as in lists from etcd.
func (l *listing) advance() error {
	before, isFirst := l.at.key, l.Read == 0
	var err error
	if l.object, err = l.Next(); errors.Is(err, io.EOF) {
		l.atEnd = true
		return nil
	} else if err != nil {
		return err
	}
	if l.at, err = identify(l.object, l.IsTable()); err != nil {
		err = fmt.Errorf("%w: %w", errHistoryLost, err)
	} else if !isFirst && l.at.key <= before {
		err = fmt.Errorf("%w: %q follows %q in its list", errHistoryLost, l.at.key, before)
	}
	return err
}

func (l *listing) kind() metav1.TypeMeta {
	return metav1.TypeMeta{Kind: strings.TrimSuffix(l.Kind, "List"), APIVersion: l.APIVersion}
}

func identify(o merge.Object, isRow bool) (identity, error) {
	metadata := metadataOf(o, isRow)
	text := func(name string) string { return scan.Text(scan.Lookup(metadata, name)) }
	if text("name") == "" {
		return identity{}, errors.New("an object of the list has no name")
	}
	return identity{text("namespace") + "/" + text("name"), text("uid"), text("resourceVersion")}, nil
}
