package review

import (
	"github.com/clusterpass/clusterpass/shared/fleet/naming"
	"github.com/clusterpass/clusterpass/shared/fleet/request"
	"github.com/clusterpass/clusterpass/shared/status"
)

const maxBody = 64 << 10 // bytes of a client's review

// read decodes the client's body.
func (h *Handler) read(of request.SelfReview, into naming.Object) error {
	data, err := request.ReadBody(h.Body, maxBody)
	if err != nil {
		return err
	}
	contentType := h.Request.Header.Get("Content-Type")
	if len(data) > 0 && !naming.Readable(contentType) {
		return status.New(status.UnsupportedMedia, "", "the fleet accepts reviews only in JSON, YAML and protobuf, "+
			"not %.100q", contentType)
	}
	if err := naming.Decode(contentType, data, into); err != nil {
		return status.New(status.BadRequest, "", "%w", err)
	}
	if kind := into.GetObjectKind().GroupVersionKind().Kind; kind != "" && kind != of.Kind {
		return status.New(status.BadRequest, "", "the body has the kind %.100q; send a %s", kind, of.Kind)
	}
	return nil
}

// splitCluster removes @cluster from the fields of a review, and returns the cluster; "" if none names one.
func (h *Handler) splitCluster(namespace, name *string) (cluster string, err error) {
	if namespace != nil {
		base, of, ok := naming.Split(*namespace, func(string) bool { return true }) // no namespace has an @ of its own
		if ok {
			*namespace, cluster = base, of
		}
	}
	if name == nil {
		return cluster, nil
	}
	base, of, ok := naming.Split(*name, h.Names.Known)
	switch {
	case h.Names.Err() != nil:
		return "", h.Names.Err()
	case !ok:
		return cluster, nil
	case cluster != "" && cluster != of:
		return "", status.New(status.BadRequest, "", "the review is about several clusters: its namespace names %q, its "+
			"name %q; name one of them", cluster, of)
	}
	*name = base
	return of, nil
}
