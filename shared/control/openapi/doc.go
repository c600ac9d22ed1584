// Package openapi has the generated OpenAPI definitions of the gateway's own API. A test of package control builds the
// files of package documents from them. No program contains them.
package openapi

//go:generate go test ../ -run TestDocuments -update
