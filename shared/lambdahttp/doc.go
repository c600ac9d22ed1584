// Package lambdahttp runs an ordinary http.Handler as an AWS Lambda function behind an Application Load Balancer, an
// API Gateway REST API (payload v1) or an API Gateway HTTP API (payload v2). With functions/, it is the only importer of
// aws-lambda-go.
//
// Invariants:
//   - Nothing is decoded or encoded twice. r.RequestURI and r.URL hold the path and query as the event has them; where the front
//     has decoded them already, they are escaped once more so that they are a URL again.
//   - A header value is never split, and never joined where the event can hold several.
//   - Body bytes are exact both ways, text or binary.
//   - An answer is whole or an error: a handler that panics, aborts, writes less than its Content-Length, or more than the
//     front takes, never becomes a well-formed short answer.
//   - Nothing that a client sends decides of which Kind an event is.
//
// # What each front does to a request
//
// Sources: [1] AWS, "Use Lambda functions as targets of an Application Load Balancer"; [2] events captured from live
// endpoints in July 2026 by the voker project (github.com/hotsock/voker, vokerhttp/testdata); [3] AWS, "Lambda proxy
// integrations in API Gateway"; [4] github.com/aws-powertools/powertools-lambda-python issue 621 and
// github.com/CodeGenieApp/serverless-express issue 465; [5] AWS, "Set up a Lambda proxy integration with payload
// response streaming in API Gateway".
//
//   - ALB: path and query stay percent-encoded as the client sent them [1][2]. The query is a map: the order of
//     different keys may be lost (the order within a key stays), and "?a" and "?a=" look alike: both become "a=".
//     Without lambda.multi_value_headers.enabled only the last of several equal headers or keys arrives [1]: enable it.
//   - REST API: the path stays encoded and lacks the stage; the query is decoded ("+" to space too) [2][3] and is
//     encoded anew here: equal in meaning, not in bytes. The API must have BinaryMediaTypes */*, or it hands base64
//     on undecoded.
//   - HTTP API: rawQueryString is as sent, but rawPath is decoded, at times twice: %2F arrives as "/", what
//     follows a %3F not at all [2]. rawPath also begins with the stage unless that is $default [4]. Equal headers are joined with commas
//     [2], which cannot be undone: "a,b" may have been one header or two. Do not put the gateway behind an HTTP API
//     where names hold such characters.
//   - Function URLs send the HTTP API's format with an encoded rawPath [2].
//
// # What each front does to an answer
//
// The ALB takes 1 MB of response JSON [1], Lambda 6 MB. It wants headers or multiValueHeaders, whichever the
// event used. Trailers and 1xx answers cannot be expressed and are dropped. Only a REST API with ResponseTransferMode
// STREAM streams: a JSON prelude with the headers, eight zero bytes, then the body as it is [5].
package lambdahttp
