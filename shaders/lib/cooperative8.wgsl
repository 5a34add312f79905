// Cooperative matrices of 8 x 8, the size that Metal offers. Fills the shader slot `cooperative`, as `lib/cooperative16` does.
enable f16;
enable wgpu_cooperative_matrix;
const SIZE: u32 = 8u;
alias Left = coop_mat8x8<f16, A>;
alias Right = coop_mat8x8<f16, B>;
alias Sum = coop_mat8x8<f32, C>;
