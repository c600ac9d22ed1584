// Command function is the function in the tests of the local Lambda. Its request and its environment control it.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/clusterpass/clusterpass/shared/lambdahttp"
)

func main() {
	switch os.Getenv("INIT") {
	case "exit":
		os.Exit(7)
	case "sleep":
		time.Sleep(time.Hour)
	case "error":
		resp, err := http.Post("http://"+os.Getenv("AWS_LAMBDA_RUNTIME_API")+"/2018-06-01/runtime/init/error",
			"application/json",
			strings.NewReader(`{"errorMessage":"no configuration","errorType":"Function.NoConfig"}`))
		if err == nil {
			resp.Body.Close()
		}
		os.Exit(1)
	}
	if os.Getenv("MODE") == "raw" { // the payload is the number of bytes of the answer
		lambda.Start(func(_ context.Context, n int) (io.Reader, error) {
			return bytes.NewReader(bytes.Repeat([]byte("1"), n)), nil
		})
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/who", who)
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		w.Header().Set("X-Uri", r.RequestURI)
		w.Header()["X-Given"] = r.Header["X-Given"]
		_, _ = io.Copy(w, r.Body)
	})
	mux.HandleFunc("/wait", wait)
	mux.HandleFunc("/sleep", func(http.ResponseWriter, *http.Request) { time.Sleep(time.Hour) })
	mux.HandleFunc("/deadline", func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		http.Error(w, "too slow", http.StatusGatewayTimeout)
	})
	mux.HandleFunc("/exit", func(http.ResponseWriter, *http.Request) { os.Exit(3) })
	mux.HandleFunc("/exit0", func(http.ResponseWriter, *http.Request) { os.Exit(0) })
	mux.HandleFunc("/panic", func(http.ResponseWriter, *http.Request) { panic("boom") })
	mux.HandleFunc("/big", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		_, _ = w.Write(bytes.Repeat([]byte("a"), n))
	})
	mux.HandleFunc("/print", func(http.ResponseWriter, *http.Request) {
		fmt.Fprintln(os.Stdout, "to stdout")
		fmt.Fprint(os.Stderr, "to stderr, "+strings.Repeat("long ", 20<<10)+"\nunfinished")
	})
	mux.HandleFunc("/spawn", func(w http.ResponseWriter, _ *http.Request) {
		cmd := exec.Command("sleep", "1000")
		cmd.Stdout = os.Stdout
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		fmt.Fprint(w, cmd.Process.Pid)
	})
	lambdahttp.Start(mux, lambdahttp.Options{})
}

func who(w http.ResponseWriter, r *http.Request) {
	lc, _ := lambdacontext.FromContext(r.Context())
	deadline, _ := r.Context().Deadline()
	dir, _ := os.Getwd()
	_ = json.NewEncoder(w).Encode(map[string]any{
		"pid": os.Getpid(), "env": os.Environ(), "dir": dir,
		"requestID": lc.AwsRequestID, "arn": lc.InvokedFunctionArn, "left": time.Until(deadline).Seconds(),
		"trace": r.Context().Value("x-amzn-trace-id"),
	})
}

func wait(w http.ResponseWriter, r *http.Request) {
	dir := os.Getenv("WAIT_DIR")
	name := r.URL.Query().Get("name")
	_ = os.WriteFile(filepath.Join(dir, name+".begun"), nil, 0o600)
	for {
		if _, err := os.Stat(filepath.Join(dir, name+".go")); err == nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	_ = os.WriteFile(filepath.Join(dir, name+".done"), nil, 0o600)
	fmt.Fprint(w, os.Getpid())
}
