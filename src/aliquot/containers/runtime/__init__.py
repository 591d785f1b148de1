"""Which device a container gets, how a runtime is told so, and what runtimes say."""
