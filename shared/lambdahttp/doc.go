// Package lambdahttp runs an http.Handler as an AWS Lambda function. It supports three fronts: the Application Load
// Balancer, the API Gateway REST API (payload v1) and the API Gateway HTTP API (payload v2). Only this package and
// functions/ import aws-lambda-go.
//
// Invariants:
//   - Nothing is decoded or encoded twice. r.RequestURI and r.URL have the path and query of the event. If the front
//     decoded them, they are escaped again to form a URL.
//   - A header value is never split. It is never joined if the event's format supports several values.
//   - Body bytes are exact in both directions, text or binary.
//   - A response is complete or an error. A handler that panics, aborts, or writes less than its Content-Length never
//     results in a valid short response. Neither does one that exceeds the front's limit.
//   - Data of a client never affects the Kind of an event.
//
// # Requests by front
//
// Sources:
//   - [1] AWS, "Use Lambda functions as targets of an Application Load Balancer"
//   - [2] events captured from live endpoints in July 2026 by the voker project (github.com/hotsock/voker,
//     vokerhttp/testdata)
//   - [3] AWS, "Lambda proxy integrations in API Gateway"
//   - [4] github.com/aws-powertools/powertools-lambda-python issue 621 and github.com/CodeGenieApp/serverless-express
//     issue 465
//
// Fronts:
//   - ALB: path and query stay percent-encoded as the client sent them [1][2]. The query is a map, so the order of
//     different keys may be lost, but not the order within a key. Both "?a" and "?a=" become "a=". Without
//     lambda.multi_value_headers.enabled, only the last of several equal headers or keys arrives [1], so enable it.
//   - REST API: the path stays encoded and lacks the stage. The query is decoded, with "+" as a space [2][3], and
//     encoded again here. The result is equivalent, but its bytes may differ. The API must have BinaryMediaTypes */*.
//     Otherwise it forwards base64 without decoding it.
//   - HTTP API: rawQueryString is unchanged, but rawPath is decoded, sometimes twice. A %2F becomes "/", and everything
//     after %3F is lost [2]. rawPath also starts with the stage unless that is $default [4]. Equal headers are joined
//     with commas [2], so "a,b" may have been one header or two. Do not use an HTTP API if names contain such
//     characters.
//   - Function URLs use the HTTP API's format with an encoded rawPath [2].
//
// # Responses by front
//
// The ALB accepts 1 MB of response JSON [1], Lambda 6 MB. The ALB needs headers or multiValueHeaders, whichever the
// event used. Trailers and 1xx responses cannot be expressed and are dropped.
package lambdahttp
