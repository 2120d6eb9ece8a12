"""Tools that agents call: what servers of the SDK `mcp` and of `fastmcp` have in common.

A tool is an operation whose key comes with the call: in its `_meta`, or in an argument that the model fills
in.  Its result, content blocks and all, is what is stored.  `retrysafe.operations.mcp` and
`retrysafe.operations.fastmcp` know their libraries; this knows the protocol:

    policy      how tools take keys, and what a server publishes about it
    tool        one tool: from the key of a call to the result that its client gets
    functions   the signature that a library is shown instead of a function's own
    words       what models are told
"""
