package object

import (
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/naming"
	"github.com/clusterpass/clusterpass/shared/fleet/respond"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Write changes one object where it is: PUT, PATCH and DELETE, and all methods of its subresources.
func (h *Handler) Write(w http.ResponseWriter, targets []members.Target) error {
	body, err := h.readBody()
	if err != nil {
		return err
	}
	targets, placement, err := h.place(targets, body)
	if err != nil {
		return err
	}
	isRefused, hidesPlacement := h.refusesWrite(placement, body), placement == "" && h.hidesPlacement()
	object, failures, err := h.owner(w, targets, isRefused || hidesPlacement)
	switch {
	case err != nil:
		return err
	case object == nil && isApply(h.contentType()) && h.Request.Resource.Subresource == "":
		return unplaced(h.Request, targets, "") // it would create the object
	case object == nil:
		return h.notFound(w, failures)
	case isRefused:
		return refuseBare(h.Request, object.Name)
	case hidesPlacement:
		if stored := storedPlacement(object.body); stored != "" && stored != object.Name {
			return refuseBare(h.Request, object.Name)
		}
	}
	return h.send(w, object.Target, body, onlyPlacement(h.Request, placement))
}

// send sends a write to one member. placement is the cluster of the annotations if nothing else names one.
func (h *Handler) send(w http.ResponseWriter, t members.Target, body *naming.Body, placement string) error {
	accept, err := h.Request.AcceptJSON()
	if err != nil {
		return err
	}
	path, name, other := body.ReferenceToOtherCluster(t.Name, h.Names.Known)
	switch {
	case h.Names.Err() != nil:
		return h.Names.Err()
	case other != "":
		return refersElsewhere(t.Name, path, name, other)
	}
	data, err := h.bodyFor(t, body)
	if err != nil {
		return err
	}
	if err := h.checkDuplicates(w.Header(), body, data); err != nil {
		return err
	}
	h.recordClusters(t.Name)
	var response []byte
	a := h.Client.Do(h.Client.Context(), t, members.Call{
		Method: h.Request.Method, Path: h.Request.Route.Path, Query: h.Request.Query(), Body: data, Write: true,
		Header: http.Header{"Accept": {accept}, "Accept-Encoding": {"identity"}},
	}, func(a *members.Answer) (err error) {
		response, err = members.ReadLimited(a.Body, merge.MaxObject)
		return err
	})
	var e *members.Failure
	isFailure := errors.As(a.Err, &e)
	switch {
	case a.Err != nil && !isFailure: // the client has gone
		return a.Err
	case a.Succeeded():
		a.Close()
		h.respondWritten(w, a, response, a.Err)
		return nil
	case e.IsNotFound() && placement != "":
		// kubectl apply saw one of that name elsewhere, and so patches an object that is to be created here.
		e.Raw, e.Message = nil, fmt.Sprintf("%s: its annotations name cluster %q; to create it there while another "+
			"cluster has an object of that name, use the name %s@%s, or kubectl apply --server-side",
			e.Message, placement, h.Request.Resource.Name, placement)
	}
	return respond.Failure(w, e, h.newAnswer(e.Cluster))
}

// respondWritten never responds to a completed write with an error, after which clients would repeat the write.
func (h *Handler) respondWritten(w http.ResponseWriter, a *members.Answer, body []byte, err error) {
	members.PassWarnings(w.Header(), []*members.Answer{a})
	var out []byte
	if err == nil {
		out, err = h.rewrite(&match{a, body})
	}
	if err == nil {
		respond.JSON(w, a.Response.StatusCode, out)
		return
	}
	text := fmt.Sprintf("cluster %q completed the write, but its response cannot be forwarded: %v; read the "+
		"object", a.Name,
		err)
	h.Client.Log().Warn("the response of a write cannot be forwarded", "cluster", a.Name, "error", err.Error())
	members.AddWarning(w.Header(), text)
	status.WriteSuccess(w, a.Response.StatusCode, metav1.Status{Message: text})
}
